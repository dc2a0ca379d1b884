// Package consensustest is the suite that an engine (package consensus) must pass. It runs
// the nodes of a small cluster in one bubble of testing/synctest, each with a log on a disk
// in memory that can lose power (package logtest), on a network that loses, doubles, delays
// and cuts, with a machine whose publishing takes its time, and judges all that the engines
// do while they do it:
//
//   - one log: two replicas never apply different entries at one index;
//   - one leader in a term;
//   - R1: no message leaves with a term above the word, but pre-votes and grants of them; and
//     a word that was told is in the log after a power cut (R10);
//   - R7: nobody publishes a write before a replica that has led its term or a later one;
//   - R12: while a change is applied, the engine does not act on it yet;
//   - what was acknowledged is there at the end, once, and all replicas are equal;
//   - a Barrier sees all that was acknowledged before it.
//
// Run plays scenes, each for one rule; Storm plays one seed of everything at once.
package consensustest
