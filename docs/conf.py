"""The site: Markdown of this folder, pages made from the schema and the catalogs, and docstrings.

`make docs` builds it. Nothing is fetched, neither when it is built nor when it is read.
"""

import sys
import warnings
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

project = "edgesim"
author = "The edgesim authors"
release = version_of("edgesim")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["measured"]
nitpicky = True
# Nothing is known of other packages without a network, nor of type variables.
nitpick_ignore_regex = [("py:.*", r"(?!edgesim\.|topologies\.).*")]
# Types of attributes that a user only passes on.
nitpick_ignore = [
    ("py:class", f"edgesim.{name}")
    for name in (
        "assembly.prepared_run.PreparedRun",
        "compression.payload.Sections",
        "compression.wire.ByteCounts",
        "compression.value_codes.ValueCode",
        "fleet.transport.progress.DeviceProgress",
        "scenario.sweep.Cell",
        "study.answer.Answer",
        "study.report.Study",
        "study.tables.table.Table",
        "sweeps.pool.Event",
    )
]

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
smartquotes = False  # they would change --set to a dash
highlight_language = "none"

default_role = "code"  # docstrings write `code` as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_rtype = False
python_use_unqualified_type_names = True

html_theme = "pydata_sphinx_theme"
html_title = "edgesim"
html_context = {"default_mode": "auto"}  # light or dark as the reader's system is
html_sidebars = {page: [] for page in ("index", "tutorial")}  # with nothing below them
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_search_summary = False  # it would be fetched, which a page opened as a file can't
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 1,
    "footer_start": [],
    "footer_end": [],
    "search_as_you_type": True,
}


def setup(app: Sphinx) -> None:
    """Write the generated pages before any page is read."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch, which autodoc imports
    from generated_pages import write_pages

    app.connect("config-inited", lambda *_: write_pages(HERE / "generated"))
