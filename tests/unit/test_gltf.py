"""The cycle as glTF: read by another library, and shown by three.js in a real Chromium."""

import base64
import os
from pathlib import Path

import numpy as np
import pygltflib
import pytest
import pyvista as pv

from browser import Browser
from meshstage.errors import InputError
from meshstage.prediction.gltf import CYCLE_SECONDS, check_shown, write_gltf

STAGES = np.array([0.0, 0.25, 0.5])
AMOUNTS = np.array([0.0, 0.2, 0.5])  # the box grows so much along x
THREE = Path("/usr/share/javascript/three")


@pytest.fixture(scope="module")
def mesh() -> pv.UnstructuredGrid:
    """Make a block of tetrahedra: only its surface is shown."""
    return pv.ImageData(dimensions=(4, 3, 3), spacing=(20.0, 15.0, 10.0)).to_tetrahedra()


@pytest.fixture(scope="module")
def file(mesh, tmp_path_factory) -> Path:
    points = np.asarray(mesh.points, float)
    moved = np.stack([points * [1 + amount, 1, 1] for amount in AMOUNTS])
    path = tmp_path_factory.mktemp("gltf") / "cycle.glb"
    write_gltf(path, mesh, points, STAGES, moved, closed=True)
    return path


def array(document: pygltflib.GLTF2, number: int) -> np.ndarray:
    accessor = document.accessors[number]
    view = document.bufferViews[accessor.bufferView]
    kind = np.uint32 if accessor.componentType == pygltflib.UNSIGNED_INT else np.float32
    data = document.binary_blob()[view.byteOffset : view.byteOffset + view.byteLength]
    found = np.frombuffer(data, kind)
    return found.reshape(-1, 3) if accessor.type == "VEC3" else found


def test_the_file_holds_surface_motion_and_times(file, mesh):
    document = pygltflib.GLTF2().load(str(file))
    (primitive,) = document.meshes[0].primitives
    rest = array(document, primitive.attributes.POSITION)
    surface = mesh.extract_surface(algorithm="dataset_surface")
    assert len(rest) == surface.n_points < mesh.n_points + 1
    assert sorted(map(tuple, rest)) == sorted(map(tuple, np.asarray(surface.points, "f4")))
    faces = array(document, primitive.indices).reshape(-1, 3)
    made = pv.PolyData.from_regular_faces(rest, faces)
    assert made.volume == pytest.approx(60 * 30 * 20)  # turned outwards and closed
    for target, amount in zip(primitive.targets, AMOUNTS, strict=True):
        moved = array(document, target["POSITION"])
        np.testing.assert_allclose(moved, rest * [amount, 0, 0], atol=1e-4)  # float32 of 90 mm
    (sampler,) = document.animations[0].samplers
    times = array(document, sampler.input)
    np.testing.assert_allclose(times, CYCLE_SECONDS * np.array([0, 0.25, 0.5, 1]))
    weights = array(document, sampler.output).reshape(4, 3)
    np.testing.assert_array_equal(weights, np.eye(3)[[0, 1, 2, 0]])  # the first comes again
    for accessor in document.accessors:  # what a viewer frames the scene by
        assert len(accessor.min) == len(accessor.max)


def test_an_open_motion_does_not_come_back(mesh, tmp_path):
    points = np.asarray(mesh.points, float)
    write_gltf(tmp_path / "o.glb", mesh, points, STAGES, np.stack([points] * 3), closed=False)
    document = pygltflib.GLTF2().load(str(tmp_path / "o.glb"))
    times = array(document, document.animations[0].samplers[0].input)
    np.testing.assert_allclose(times, CYCLE_SECONDS * STAGES)


def test_a_model_that_moves_nothing_is_refused(mesh):
    class Made:
        moves_meshes, target_array = False, "strain"

    with pytest.raises(InputError, match="'strain' moves no mesh; leave out --gltf"):
        check_shown(Made())  # type: ignore[arg-type]
    Made.moves_meshes, Made.mesh = True, pv.Line()  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="no surface to show"):
        check_shown(Made())  # type: ignore[arg-type]


PAGE = """\
<!DOCTYPE html><html><body style="margin:0">
<script>THREE_JS</script><script>LOADER_JS</script>
<script>
const bytes = Uint8Array.from(atob("GLB"), c => c.charCodeAt(0));
const renderer = new THREE.WebGLRenderer({preserveDrawingBuffer: true});
renderer.setSize(400, 300);
document.body.appendChild(renderer.domElement);
const scene = new THREE.Scene(), camera = new THREE.PerspectiveCamera(40, 4 / 3, 0.001, 10);
scene.background = new THREE.Color(0x000000);
scene.add(new THREE.HemisphereLight(0xffffff, 0x888888, 2));
camera.position.set(0.03, 0.05, 0.3);
new THREE.GLTFLoader().parse(bytes.buffer, "", loaded => {
  scene.add(loaded.scene);
  let shown;
  loaded.scene.traverse(node => { if (node.isMesh) shown = node; });
  const mixer = new THREE.AnimationMixer(loaded.scene);
  mixer.clipAction(loaded.animations[0]).play();
  window.at = seconds => {
    mixer.setTime(seconds);
    renderer.render(scene, camera);
    const pixels = new Uint8Array(4 * 400 * 300), gl = renderer.getContext();
    gl.readPixels(0, 0, 400, 300, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
    let lit = 0;
    for (let i = 0; i < pixels.length; i += 4) lit += pixels[i] > 20;
    return {lit, weights: [...shown.morphTargetInfluences],
            names: Object.keys(shown.morphTargetDictionary || {}),
            up: new THREE.Box3().setFromObject(shown).max.toArray()};
  };
}, error => console.error(String(error)));
</script></body></html>
"""


def test_chromium_shows_it_move(file, tmp_path):
    loader = THREE / "examples/js/loaders/GLTFLoader.js"
    if not loader.exists():
        if os.environ.get("CI") == "true":
            pytest.fail("no three.js, and CI must have it (Debian: apt-get install libjs-three)")
        pytest.skip("no three.js here")
    page = PAGE.replace("GLB", base64.b64encode(file.read_bytes()).decode())
    page = page.replace("LOADER_JS", loader.read_text()).replace(
        "THREE_JS", (THREE / "three.min.js").read_text().replace("</script>", r"<\/script>")
    )
    (tmp_path / "page.html").write_text(page)
    with Browser(tmp_path / "profile") as browser:
        browser.open(tmp_path / "page.html")
        browser.wait_for("Boolean(window.at)")
        rest = browser.evaluate("at(0)")
        # Between the stages 0.25 and 0.5, half way.
        middle = browser.evaluate(f"at({0.375 * CYCLE_SECONDS})")
        largest = browser.evaluate(f"at({0.5 * CYCLE_SECONDS})")
        assert browser.console == []
    assert rest["weights"] == pytest.approx([1, 0, 0])
    assert middle["weights"] == pytest.approx([0, 0.5, 0.5], abs=1e-5)
    assert largest["weights"] == pytest.approx([0, 0, 1], abs=1e-5)
    assert rest["names"] == ["stage 0", "stage 0.25", "stage 0.5"]
    # Metres, and what was z is up: 60 x 30 x 20 mm. (Along x three.js adds what may be added.)
    np.testing.assert_allclose(rest["up"][1:], [0.02, 0.0], atol=1e-3)
    assert 0 < rest["lit"] < middle["lit"] < largest["lit"]
