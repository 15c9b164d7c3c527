(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage", "resetScale2d"]],
    toImageButtonOptions: { format: "svg" },
  };
  const touch = window.matchMedia("(pointer: coarse)").matches;

  function isHidden(section, series) {
    const button = section.querySelector('[data-series="' + series + '"]');
    return button !== null && button.getAttribute("aria-pressed") === "false";
  }

  function newPanel() {
    const panel = document.createElement("div");
    panel.className = "panel";
    return panel;
  }

  function draw(section, view) {
    const panels = section.querySelector(".panels");
    const figures = data[section.dataset.plot][view];
    Array.from(panels.children).forEach((old) => Plotly.purge(old));
    // All panels stand in the grid before the first is drawn: a plot takes its width from there.
    panels.replaceChildren(...figures.map(newPanel));
    return Promise.all(figures.map((figure, index) => {
      figure.data.forEach((trace) => {
        trace.visible = !(trace.legendgroup && isHidden(section, trace.legendgroup));
      });
      // A finger that moves over a plot scrolls the page.
      figure.layout.dragmode = touch ? false : "zoom";
      return Plotly.newPlot(panels.children[index], figure.data, figure.layout, config);
    }));
  }

  document.querySelectorAll(".plot").forEach((section) => {
    let shown = 0;
    // One drawing after the other: a plot must not be removed while it is being drawn.
    let drawing = draw(section, shown);
    const redraw = () => { drawing = drawing.then(() => draw(section, shown)); };

    const views = Array.from(section.querySelectorAll(".views button"));
    views.forEach((button, index) => {
      button.addEventListener("click", () => {
        shown = index;
        views.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        redraw();
      });
    });
    section.querySelectorAll(".legend button").forEach((button) => {
      button.addEventListener("click", () => {
        const pressed = button.getAttribute("aria-pressed") === "true";
        button.setAttribute("aria-pressed", String(!pressed));
        redraw();
      });
    });
  });

  // On paper a plot cannot follow the width of its place: two beside each other, or one alone.
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((part) => { part.open = true; });
    document.querySelectorAll(".panel").forEach((panel) => {
      Plotly.relayout(panel, { width: panel.parentNode.children.length > 1 ? 330 : 660 });
    });
  });
  window.addEventListener("afterprint", () => {
    document.querySelectorAll(".panel").forEach((panel) => {
      Plotly.relayout(panel, { width: null, autosize: true });
    });
  });
})();
