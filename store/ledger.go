package store

func checkLedger(c Config) error { return nil }
func writeLedger(c Config) error { return nil }
