package main

import (
	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cli/fabrics"
	"github.com/rdmakv/rdmakv/internal/config"
)

// clientConfig is what kvclient would use with the same environment.
func clientConfig(env []string) (client.Config, error) {
	l, err := config.Load(config.Options{Scope: config.ForClient, Env: env})
	if err != nil {
		return client.Config{}, err
	}
	secret, err := l.Secret()
	if err != nil {
		return client.Config{}, err
	}
	list, err := fabrics.ForClient(l.Config, nil)
	if err != nil {
		return client.Config{}, err
	}
	cache := l.CacheEntries
	if cache == 0 {
		cache = -1 // the library's word for none
	}
	return client.Config{
		Servers: l.Servers, Fabrics: list, Devices: l.Device, RequireRDMA: l.RequireRDMA, Secret: secret, Tenant: l.Tenant,
		Timeout: l.Timeout, CacheEntries: cache,
	}, nil
}
