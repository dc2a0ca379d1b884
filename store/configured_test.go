package store

import (
	"testing"

	"github.com/rdmakv/rdmakv/internal/config"
)

// TestConfigured: where the store fills in a value that is also a setting, both have the
// same default, and the store takes the least and the most that the setting may be.
func TestConfigured(t *testing.T) {
	def := config.Default()
	cfg := Config{}.withDefaults()
	for _, c := range []struct {
		key       string
		got, want any
		set       func(c *Config, v any)
	}{
		{"shards", cfg.Shards, def.Shards, func(c *Config, v any) { c.Shards = v.(int) }},
		{"sync_interval", cfg.SyncInterval, def.SyncInterval, nil},
		{"memory_limit", config.Size(cfg.MemoryLimit), def.MemoryLimit, func(c *Config, v any) { c.MemoryLimit = uint64(v.(config.Size)) }},
		{"watch_bytes", nil, nil, func(c *Config, v any) { c.WatchBytes = int(v.(config.Size)) }},
		{"log_bytes", config.Size(cfg.LogBytes), def.LogBytes, func(c *Config, v any) { c.LogBytes = int64(v.(config.Size)) }},
		{"sync", cfg.Sync.String(), def.Sync, nil},
		{"mode", cfg.Mode.String(), def.Mode, nil},
	} {
		if c.got != c.want {
			t.Errorf("%s: a store has %v by default, the setting %v", c.key, c.got, c.want)
		}
		for _, k := range config.Keys() {
			if k.Name != c.key || c.set == nil {
				continue
			}
			least, most := k.Bounds()
			for _, v := range []any{least, most} {
				one := testConfig(nil)
				c.set(&one, v)
				if err := one.withDefaults().validate(); err != nil {
					t.Errorf("%s: %v: %v", c.key, v, err)
				}
			}
		}
	}
}
