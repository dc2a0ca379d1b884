// Package report is the results of a comparison: the figures of every contender in
// every round, the targets they are held to, and the three forms in which they are
// written down: JSON, a page of Markdown, and pictures.
//
// # Ratios
//
// A ratio is made of two figures of one round, which were measured within seconds
// of each other. The median of the ratios counts; the smallest and the largest are
// shown beside it. Where a target is against a peer that was measured in several
// ways, the way whose median is best for the peer counts.
//
// The files, one idea each: result (the schema of the JSON), figures (statistics),
// judge (targets), counted (instructions in place of times), machine (where it was
// measured), markdown, method and tables (the page), readme (its table), pictures (of rows) and overview (of all).
package report
