package config

// Choices lists what a key takes if that is one of a few names, else nil. The
// checks and the completion of shells go by this list.
func Choices(key string) []string {
	switch key {
	case "fabric":
		return []string{"auto", "verbs", "iwarp", "shm"}
	case "verbs_connect":
		return []string{"cm", "tcp"}
	case "wait_mode":
		return []string{"adaptive", "poll", "event"}
	case "shm":
		return []string{"user", "trusted", "off"}
	case "log_level":
		return []string{"debug", "info", "warn", "error"}
	case "log_format":
		return []string{"text", "json"}
	case "mode":
		return []string{"durable", "cache"}
	case "sync":
		return []string{"always", "interval", "off"}
	case "huge_pages":
		return []string{"off", "try", "on"}
	case "gossip.profile":
		return []string{"lan", "fast", "wan"}
	}
	return nil
}
