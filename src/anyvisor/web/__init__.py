"""The web console: plain HTML, style sheets and modules; `vendor/` is put there by `make web`."""
