package main

import (
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/rdma/verbs"
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
	list, err := fabrics(l.Config)
	if err != nil {
		return client.Config{}, err
	}
	cache := l.CacheEntries
	if cache == 0 {
		cache = -1 // the library's word for none
	}
	return client.Config{
		Servers: l.Servers, Fabrics: list, Devices: l.Device, RequireRDMA: l.RequireRDMA, Secret: secret, Tenant: l.Tenant,
		Timeout: l.Timeout, CacheEntries: cache, MaxInflight: l.MaxInflight,
	}, nil
}

// fabrics are those that the configuration allows, the one to prefer first.
func fabrics(c config.Config) (list []rdma.Fabric, err error) {
	if (c.Fabric == "auto" || c.Fabric == "shm") && !c.RequireRDMA && c.Shm != "off" {
		o := shm.Options{Dir: c.ShmDir}
		if c.Shm == "trusted" {
			o.Trust = shm.Trusted
		}
		list = append(list, shm.New(o))
	}
	if c.Fabric == "auto" || c.Fabric == "verbs" {
		list = append(list, verbs.New(verbs.Options{
			Connect: c.VerbsConnect, GIDIndex: c.GIDIndex, TrafficClass: uint8(c.TrafficClass), ServiceLevel: uint8(c.ServiceLevel),
			PathMTU: c.PathMTU, Timeout: uint8(c.AckTimeout), RetryCount: uint8(c.RetryCount),
		}))
	}
	if (c.Fabric == "auto" || c.Fabric == "iwarp") && !c.RequireRDMA {
		tls, err := c.TLSConfig()
		if err != nil {
			return nil, err
		}
		o := iwarp.Options{TLS: tls, Spin: time.Duration(c.Spin)}
		switch c.Spin {
		case config.SpinAuto:
			o.Spin = 0
		case 0:
			o.Spin = -1 // the fabric's word for none
		}
		if o.Wait, err = rdma.ParseWaitMode(c.Wait); err != nil {
			return nil, err
		}
		list = append(list, iwarp.New(o))
	}
	return list, nil
}
