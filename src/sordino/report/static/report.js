(() => {
  document.documentElement.classList.add("js");
  const { charts } = JSON.parse(document.getElementById("data").textContent);
  const drawn = new Charts();
  const draw = () => {
    for (const chart of charts) drawn.draw(document.getElementById(`chart-${chart.key}`), chart);
  };
  theme.start(draw);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawn.fit(); } });
})();
