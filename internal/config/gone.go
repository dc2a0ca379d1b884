package config

import (
	"fmt"
	"strings"
)

// gone lists the keys that earlier versions had. They are errors like every unknown
// key, because a setting without effect would be believed to be in effect; the error
// says what has become of the key, in whichever layer it stands.
var gone = []struct {
	key string
	now string // the key that does it now; "": none
	why string // otherwise: why no key is needed
}{
	{"ack_timeout", "", "a verbs connection waits 67 ms for an acknowledgement (14, as its default was)"},
	{"retry_count", "", "a verbs connection sends a packet 6 times again, as its default was"},
	{"credits", "", "a session may have 64 requests in flight, as its default was"},
	{"spin", "expert.spin", ""},
	{"cores", "expert.cores", ""},
	{"service_level", "expert.service_level", ""},
	{"path_mtu", "expert.path_mtu", ""},
	{"numa_node", "", "memory is taken from the NUMA node of the devices, and numactl --membind chooses another"},
	{"prefault", "expert.prefault", ""},
	{"region_size", "expert.region_size", ""},
	{"index_region_size", "expert.index_region_size", ""},
	{"scrub_rate", "", "a pass over the memory takes an hour, and 8 to 64 MiB are verified per second"},
	{"max_sessions_per_host", "expert.max_sessions_per_host", ""},
	{"region_idle", "", "an empty region is given back after 10 minutes, as its default was"},
	{"max_inflight", "", "a client has 64 requests in flight at most, as its default was"},
}

// Gone says what has become of a key that earlier versions had, by its name in a file,
// in the environment (RDMAKV_CREDITS) or as a flag (--credits). "": there was none.
func Gone(name string) string {
	for _, g := range gone {
		in := func(key string) string { return key }
		switch name {
		case g.key:
		case envOf(g.key):
			in = envOf
		case "--" + flagOf(g.key):
			in = func(key string) string { return "--" + flagOf(key) }
		default:
			continue
		}
		if g.now != "" {
			return "it is " + in(g.now) + " now"
		}
		return "it is no setting any more: " + g.why
	}
	return ""
}

// envOf is the variable of a key, and flagOf its flag, without the dashes.
func envOf(key string) string  { return EnvPrefix + strings.ToUpper(underlined.Replace(key)) }
func flagOf(key string) string { return dashed.Replace(key) }

// unknown is the end of a message about an unknown name: what has become of it, or the
// name that was meant, or all that there are.
func unknown(name string, names []string) string {
	if now := Gone(name); now != "" {
		return ": " + now
	}
	return didYouMean(name, names)
}

// didYouMean is the end of a message about an unknown name.
func didYouMean(name string, names []string) string {
	if n := Nearest(name, names); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return "; known: " + strings.Join(names, ", ")
}
