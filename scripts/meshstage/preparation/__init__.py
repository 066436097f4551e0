"""From folders of meshes of other people to a cohort."""
