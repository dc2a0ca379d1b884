package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// etcd is the peer of rows of replicas whose puts are as durable: a majority has each on its
// disk. It is asked by its own client library over gRPC, in a program of its own, which is a
// module of its own, so that rdmakv's needs no gRPC.

// etcdModule is that module, below the root of the repository.
const etcdModule = "bench/compare/etcd"

// etcdWorker returns the program, built once for a row.
func (r *rig) etcdWorker(ctx context.Context) (string, error) {
	if r.etcd != "" {
		return r.etcd, nil
	}
	module, err := filepath.Abs(filepath.Join(r.o.root, etcdModule))
	if err != nil {
		return "", err
	}
	path := filepath.Join(r.dir, "etcd-worker")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, ".")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off", "PWD="+module)
	cmd.WaitDelay = time.Second
	var exit *exec.ExitError
	if out, err := cmd.CombinedOutput(); errors.As(err, &exit) {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		return "", fmt.Errorf("the client of etcd cannot be built: go build in %s: %s", etcdModule, lines[len(lines)-1])
	} else if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // without a directory of this machine
		}
		return "", fmt.Errorf("the client of etcd cannot be built: go build in %s does not start: %w", etcdModule, err)
	}
	r.etcd = path
	return path, nil
}

// etcdRecipe starts three members.
func etcdRecipe(asked jobs.Etcd) recipe {
	return recipe{
		name:  "etcd",
		start: servers.Etcd{Members: nodesOfAll}.Start,
		target: func(s *servers.Server) jobs.Target {
			return jobs.Target{System: "etcd", Network: "tcp", Addr: s.TCP, Others: s.OtherTCP(), Etcd: asked}
		},
		program: func(ctx context.Context, r *rig) (string, error) { return r.etcdWorker(ctx) },
	}
}

// etcd is etcd asked in one way.
func etcd(asked jobs.Etcd, d dataset, l workload) contender {
	name, group := "etcd", "etcd"
	how := []string{"three members with default settings; go.etcd.io/etcd/client/v3", "one client of three endpoints", l.words()}
	if l.op == "get" && asked.Serializable {
		name, group = "etcd, serializable", "etcd serializable"
		how = append(how, "WithSerializable")
	}
	if asked.AtLeader {
		name += ", at its leader"
		how[1] = "one client, whose one endpoint is the leader"
	}
	if asked.Many {
		name += fmt.Sprintf(", %d clients", l.callers)
		how[1] = strings.Replace(how[1], "one client", "a client for each caller", 1)
	}
	return contender{
		Contender: report.Contender{Name: name, Kind: report.Peer, System: "etcd", Waiting: "sleeps", How: strings.Join(how, ", ")},
		group:     group,
		measure: func(ctx context.Context, r *rig) (report.Sample, error) {
			return loaded(ctx, r, etcdRecipe(asked), d, l, false)
		},
	}
}
