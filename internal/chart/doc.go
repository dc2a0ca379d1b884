// Package chart draws line charts and bar charts as SVG, for the figures of
// benchmarks.
//
// It is small on purpose. Charts bring their own background, and an SVG follows
// the reader's light or dark scheme, so that they can be read on any page. Colours
// are those of Okabe and Ito, which most colour-blind people can tell apart.
//
// The files, one idea each: chart (what charts have in common), line, bars, ticks,
// svg (the canvas), text (how wide text is).
package chart
