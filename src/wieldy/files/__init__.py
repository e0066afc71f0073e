"""Files of a project: reading, editing, writing, the journal that undo needs, search, and copies of whole projects.

Other rooms use `apply_edit`, `reading`, `search`, `working_copies` and the journal. It imports `core`.
"""
