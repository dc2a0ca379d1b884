// Package report is what a comparison comes to: the figures of every contender
// in every round, the targets they are held to, and the three forms in which
// they are written down: JSON, a page of Markdown, and pictures.
//
// # Ratios
//
// A ratio is made of two figures of one round, which were measured within
// seconds of each other; the median of the ratios is what counts, and the
// smallest and the largest are told. Where a target is against a peer that was
// measured in several ways, the way whose median is best for the peer counts.
//
// The files, one idea each: result (the schema of the JSON), figures (statistics),
// judge (targets), machine (where it was measured), markdown, tables, pictures.
package report
