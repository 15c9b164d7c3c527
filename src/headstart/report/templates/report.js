(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    toImageButtonOptions: { format: "svg" },
  };

  function isHidden(section, series) {
    const button = section.querySelector('[data-series="' + series + '"]');
    return button !== null && button.getAttribute("aria-pressed") === "false";
  }

  function draw(section, view) {
    const panels = section.querySelector(".panels");
    panels.querySelectorAll(".panel").forEach((old) => Plotly.purge(old));
    panels.replaceChildren();
    data[section.dataset.plot][view].forEach((figure) => {
      const panel = document.createElement("div");
      panel.className = "panel";
      panels.append(panel);
      figure.data.forEach((trace) => {
        trace.visible = !(trace.legendgroup && isHidden(section, trace.legendgroup));
      });
      Plotly.newPlot(panel, figure.data, figure.layout, config);
    });
  }

  document.querySelectorAll(".plot").forEach((section) => {
    let shown = 0;
    const views = Array.from(section.querySelectorAll(".views button"));
    views.forEach((button, index) => {
      button.addEventListener("click", () => {
        shown = index;
        views.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        draw(section, shown);
      });
    });
    section.querySelectorAll(".legend button").forEach((button) => {
      button.addEventListener("click", () => {
        const pressed = button.getAttribute("aria-pressed") === "true";
        button.setAttribute("aria-pressed", String(!pressed));
        draw(section, shown);
      });
    });
    draw(section, shown);
  });

  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((part) => { part.open = true; });
    document.querySelectorAll(".panel").forEach((panel) => Plotly.Plots.resize(panel));
  });
})();
