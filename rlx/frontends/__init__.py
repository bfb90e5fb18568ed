"""Readers of models that other frameworks wrote, a package a format."""
