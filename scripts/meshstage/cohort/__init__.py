"""Subjects on one template: names, manifests, shape model, template, ingest, statistics."""
