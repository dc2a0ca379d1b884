package lab

// readTSC reads the processor's cycle counter (RDTSC).
func readTSC() uint64
