"""A hook of MkDocs: docstrings are plain text, whose lists of parameters are aligned columns. Markdown would
run their lines together."""
import re


def on_page_content(html, page, **rest):
    if page.file.src_uri != "reference/python.md":
        return html
    return re.sub(r"<p>((?:(?!</?p>).)*?\n {2,}(?:(?!</?p>).)*)</p>", r"<pre class='aligned'>\1</pre>", html, flags=re.S)
