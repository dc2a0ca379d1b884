package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/rdmakv/rdmakv/bench/compare/servers"
	"github.com/rdmakv/rdmakv/client"
)

// workerArg makes this program a worker: a process with many clients. It reads orders, a
// line of JSON each, and answers each with a line. It ends with its standard input.
const workerArg = "worker"

// An order is what a worker is to do.
type order struct {
	Open   int // so many clients more, of Target
	Target target
	Get    bool // one get by each client
}

// An answer is how things stand after an order.
type answer struct {
	Process  process
	Reads    uint64 // posted by all clients since they were made
	Renewals uint64
	Error    string
}

// work is the worker.
func work(ctx context.Context, in io.Reader, out io.Writer) error {
	var all []*client.Client
	defer func() {
		for _, c := range all {
			_ = c.Close()
		}
	}()
	orders := json.NewDecoder(in)
	answers := json.NewEncoder(out)
	for {
		var d order
		if err := orders.Decode(&d); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		more, err := d.open(ctx)
		all = append(all, more...)
		if err == nil && d.Get {
			err = everyone(len(all), func(i int) error {
				_, err := all[i].Get(ctx, keys().Append(nil, 0))
				return err
			})
		}
		var a answer
		if err == nil {
			a, err = stand(all)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// open makes clients, which share a fabric and nothing else.
func (d order) open(ctx context.Context) ([]*client.Client, error) {
	if d.Open == 0 {
		return nil, nil
	}
	fabrics, err := d.Target.fabrics()
	if err != nil {
		return nil, err
	}
	list := make([]*client.Client, d.Open)
	err = everyone(d.Open, func(i int) (err error) {
		list[i], err = d.Target.dial(ctx, fabrics)
		return err
	})
	opened := list[:0]
	for _, c := range list {
		if c != nil {
			opened = append(opened, c)
		}
	}
	return opened, err
}

// everyone calls f for 0 to n-1, a few at a time: a server sets up 64 connections of one
// host at once. It returns the first error of each caller.
func everyone(n int, f func(i int) error) error {
	const atOnce = 4
	errs := make([]error, atOnce)
	var wg sync.WaitGroup
	for w := range atOnce {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += atOnce {
				errs[w] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// stand reads what this process takes, with its garbage collected.
func stand(all []*client.Client) (a answer, err error) {
	for _, c := range all {
		n := c.Counters()
		a.Reads += n.Reads
		a.Renewals += n.LeaseRenewals
	}
	debug.FreeOSMemory()
	a.Process.Goroutines = runtime.NumGoroutine()
	resident, _, err := servers.Resident(os.Getpid())
	if err != nil {
		return a, err
	}
	a.Process.Resident = int64(resident)
	a.Process.Files, err = files(os.Getpid())
	return a, err
}

// A worker is such a process, as its parent has it.
type worker struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Reader
	said    bytes.Buffer
}

// hire starts a worker, which ends when this process does.
func hire(ctx context.Context) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: exec.CommandContext(ctx, self, workerArg)}
	w.cmd.SysProcAttr = servers.Attached()
	w.cmd.Stderr = &w.said
	if w.orders, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.answers = bufio.NewReader(out)
	return w, servers.StartOn(w.cmd, -1)
}

// do gives an order and waits for the answer.
func (w *worker) do(d order) (a answer, err error) {
	if err := json.NewEncoder(w.orders).Encode(d); err != nil {
		return a, fmt.Errorf("a worker is gone: %w: %.300s", err, w.said.String())
	}
	line, err := w.answers.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		return a, fmt.Errorf("a worker gave no answer: %w: %.300s", err, w.said.String())
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// dismiss ends the worker.
func (w *worker) dismiss() error {
	_ = w.orders.Close() // it ends by itself
	return w.cmd.Wait()
}
