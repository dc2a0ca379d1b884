// Logcost measures what the bounds of a store's log rest on: how long syncs take,
// how fast a log is read back, what reading and writing tables beside syncs costs
// them, and what Pebble does with tables that are ingested as checkpoints. It uses
// plain files, Pebble, and the public API of the store, and prints a page of
// Markdown.
//
//	logcost                        all tables, in less than ten minutes if nothing else runs
//	logcost -only syncs,replay     some of them; -list tells their names
//	logcost -quick                 a test of the program itself, in a minute
//	logcost -big                   levels and checkpoints at full size: half an hour
//
// # How it measures
//
// A table has a row for each case. In every round each case has one turn, in an
// order drawn anew from the seed, so that load on the machine disturbs all alike.
// A cell is the median over the rounds. The ratio of a row is the median of its
// ratios to the first row, each taken within a round: on a machine that is shared it says
// more than the figure.
//
// The files, one idea each: main (flags), table (medians, ratios, Markdown), disk
// (direct writes, syncs, processor time), syncs, record (a log's bytes: written,
// read, verified), newest (the newest record of each key), replay, fill (what a
// start of today's store takes for each key), base (Pebble as the store has it,
// and tables for it), beside (writes beside neighbours that read or write), levels
// (checkpoints one upon the other), scans (keys of large values), checkpoint (from
// a segment's bytes to an ingested table).
package main
