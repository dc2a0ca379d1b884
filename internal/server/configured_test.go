package server

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/store"
)

// TestConfigured: where a node fills in a value that is also a setting, both have the
// same default, and a node takes the least and the most that the setting may be.
func TestConfigured(t *testing.T) {
	def := config.Default()
	cfg := testConfig().withDefaults()
	for _, c := range []struct {
		key       string
		got, want any
		set       func(c *Config, v any)
	}{
		{"lease", cfg.Lease, time.Duration(def.Lease), func(c *Config, v any) { c.Lease = time.Duration(v.(config.Term)) }},
		{"max_sessions", cfg.MaxSessions, def.MaxSessions, func(c *Config, v any) { c.MaxSessions = v.(int) }},
		{"watch_bytes", cfg.WatchBytes, int64(def.WatchBytes), func(c *Config, v any) { c.WatchBytes = int64(v.(config.Size)) }},
		{"log_bytes", int64(store.DefaultLogBytes), int64(def.LogBytes), func(c *Config, v any) { c.LogBytes = int64(v.(config.Size)) }},
		{"rkey_max_age", cfg.RKeyMaxAge, time.Duration(def.RkeyMaxAge), func(c *Config, v any) { c.RKeyMaxAge = time.Duration(v.(config.Term)) }},
	} {
		if c.got != c.want {
			t.Errorf("%s: a node has %v by default, the setting %v", c.key, c.got, c.want)
		}
		for _, k := range config.Keys() {
			if k.Name != c.key {
				continue
			}
			least, most := k.Bounds()
			for _, v := range []any{least, most} {
				one := testConfig()
				c.set(&one, v)
				if _, err := New(one); err != nil {
					t.Errorf("%s: %v: %v", c.key, v, err)
				}
			}
		}
	}
}
