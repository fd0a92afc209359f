"""How Sphinx makes a site of the pages: ``make docs``.

The source folder is the repository, so that links between README, pages and files are the same on
the repository's page and on the site. A link to what is no page is a download.
"""

from symbiont_ecology import __version__

project = "Symbiont Ecology"
author = "The Symbiont Ecology developers"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "examples/**.md"]
exclude_patterns = ["docs/paper_packs/*/excerpt.md"]  # other pages quote them
myst_heading_anchors = 4
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
html_theme = "furo"
html_title = project
html_static_path = ["site/static"]
html_css_files = ["wide.css"]
html_extra_path = ["site/index.html"]  # leads to the first page
linkcheck_timeout = 20
