"""Agents as files that people read and edit: read without following links, written whole or not at all."""
