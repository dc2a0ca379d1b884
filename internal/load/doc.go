// Package load makes load for a key-value store and measures the answers: the
// workloads of YCSB and other mixes, chosen keys, values that can be checked,
// callers in a closed loop or at a fixed rate, latencies by operation and by path.
//
// It knows no store: a program brings one as a Store, so that several stores can
// be measured with the same keys, values, order and clock.
//
// # What is measured
//
// A caller (Options.Workers of them) makes one call after the other. In the closed
// loop the next one begins when the last one has ended; a slow store gets fewer
// calls, and the latency is that of a call. With Options.Rate calls are due at
// fixed moments whatever the store does, and the latency of a call counts from
// when it was due, so the time by which a slow call delays others is in the
// figures (no coordinated omission).
//
// The clock is read once for each call: the end of one call is the beginning of
// the next. Keys are chosen and written out for a block of calls beforehand,
// outside of any call's time. Inside of it are, beside the call: one reading of
// the clock, filling a histogram, checking or making a value of up to 1 KiB.
// BenchmarkOverhead measures all of this. Around larger values the clock is
// read twice.
//
// The files, one idea each: store (what is measured), options, mix (which
// operations), choose and zipf (which key), keys and values (bytes), sizes,
// frontier (keys inserted while it runs), fill (the load phase), run, worker and
// pace (callers), record and series (what is noted), errors, result.
package load
