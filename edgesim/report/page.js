"use strict";
// Draws the figures of a report and offers their data; vegaEmbed and its libraries stand before.
(() => {
  const content = JSON.parse(document.getElementById("report-content").textContent);

  function isNarrow() {
    return document.documentElement.clientWidth < 600;
  }

  function config() {
    const config = JSON.parse(JSON.stringify(content.config));
    const narrow = isNarrow();
    config.axisY.labelLimit = narrow ? 120 : 260;
    config.axisX.labelOverlap = true;
    config.legend.columns = narrow ? 2 : 4;
    config.legend.labelLimit = narrow ? 140 : 420;
    return config;
  }

  function draw(place, chosen) {
    const figure = content.figures[place.dataset.figure];
    const spec = JSON.parse(JSON.stringify(figure.views[chosen]));
    spec.datasets = {};
    for (const [name, table] of Object.entries(figure.tables)) {
      spec.datasets[name] = content.tables[table];
    }
    if (isNarrow() && spec.usermeta && spec.usermeta.narrow) {
      Object.assign(spec, spec.usermeta.narrow);
    }
    spec.$schema = content.schema;
    spec.description = figure.description;
    const options = {
      renderer: "svg",
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: place.dataset.figure,
      config: config(),
      tooltip: { theme: "light" },
    };
    if (place.view) {
      place.view.finalize();
    }
    return window.vegaEmbed(place, spec, options).then((result) => {
      place.view = result;
      place.dataset.drawn = "yes";
    }).catch((error) => {
      place.classList.add("broken");
      place.textContent = "This figure could not be drawn: " + error.message;
      console.error(place.dataset.figure, error);
    });
  }

  function chosenView(place) {
    const name = "view-" + place.dataset.figure;
    const inputs = [...document.getElementsByName(name)];
    return Math.max(0, inputs.findIndex((input) => input.checked));
  }

  async function drawAll(within) {
    for (const place of within.querySelectorAll(".chart")) {
      // A chart in a closed section has no width yet; it is drawn when its section is opened.
      if (place.offsetParent !== null && !place.view) {
        await draw(place, chosenView(place));
      }
    }
  }

  function offerData() {
    for (const link of document.querySelectorAll("a[data-table]")) {
      link.addEventListener("click", () => {
        const text = content.tables[link.dataset.table];
        link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
        setTimeout(() => URL.revokeObjectURL(link.href), 10000);
      });
    }
  }

  function listen() {
    for (const input of document.querySelectorAll("input[type=radio][data-figure]")) {
      input.addEventListener("change", () => {
        const place = document.querySelector(`.chart[data-figure="${input.dataset.figure}"]`);
        draw(place, Number(input.value));
      });
    }
    for (const section of document.querySelectorAll("details")) {
      section.addEventListener("toggle", () => section.open && drawAll(section));
    }
    let narrow = isNarrow();
    window.addEventListener("resize", () => {
      if (isNarrow() === narrow) {
        return;
      }
      narrow = isNarrow();
      for (const place of document.querySelectorAll(".chart")) {
        if (place.view) {
          draw(place, chosenView(place));
        }
      }
    });
  }

  offerData();
  listen();
  drawAll(document).then(() => { document.body.dataset.drawn = "yes"; });
})();
