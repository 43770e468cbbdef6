/* What every page starts with. packing (snippets/_site) makes one script of this and of all that it imports;
   a widget's script comes with the first page that has the widget, and imports from this one. */
import "../figures/charts.js";
import "../figures/light_map.js";
import "./code_buttons.js";
import "./copy_file.js";
import "./edit_and_run.js";
import "./find.js";
import "./glossary.js";
import "./moved.js";
import "./orientation.js";
import "./progress.js";
import "./resume.js";
import "./same_page.js";
import "./scheme.js";
import "./wide_tables.js";
import "./widgets.js";
