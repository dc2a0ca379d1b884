package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/client"
)

// A db is the binding: go-ycsb's ycsb.DB and ycsb.BatchDB over one client, which
// all threads share, as in a real program. Operations that fail are counted.
//
// A record is one value. An update of some of its fields, which is YCSB's default,
// gets the record and puts it under the condition that it has not been written in
// between; if it has, the update begins again. So no update is lost, as none would
// be in a store that knows of fields.
type db struct {
	c      *client.Client
	failed atomic.Int64

	mu    sync.Mutex
	first []error // the first few
}

// Bounds of the binding.
const (
	maxShown   = 3   // errors that are shown
	maxUpdates = 200 // tries of one update
)

var errContended = errors.New("the record was written by others again and again")

// fail counts an error.
func (d *db) fail(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	d.failed.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.first) < maxShown {
		d.first = append(d.first, err)
	}
	return err
}

// outcome is an error if any operation failed.
func (d *db) outcome() error {
	n := d.failed.Load()
	if n == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Errorf("%d operations failed, the first with: %w", n, errors.Join(d.first...))
}

func keyOf(table, key string) []byte { return []byte(table + ":" + key) }

// Close leaves the client to main, which has made it.
func (d *db) Close() error { return nil }

// InitThread has nothing to do: threads share the client.
func (d *db) InitThread(ctx context.Context, _, _ int) context.Context { return ctx }

// CleanupThread has nothing to do.
func (d *db) CleanupThread(context.Context) {}

// Read gets a record.
func (d *db) Read(ctx context.Context, table, key string, fields []string) (map[string][]byte, error) {
	value, err := d.c.Get(ctx, keyOf(table, key))
	if err != nil {
		return nil, d.fail(err)
	}
	record, err := parseRecord(value, fields)
	return record, d.fail(err)
}

// Scan reads up to count records in order of keys.
func (d *db) Scan(ctx context.Context, table, startKey string, count int, fields []string) ([]map[string][]byte, error) {
	var records []map[string][]byte
	for e, err := range d.c.Scan(ctx, client.ScanOptions{Prefix: []byte(table + ":"), Start: keyOf(table, startKey), Limit: count}) {
		if err != nil {
			return records, d.fail(err)
		}
		record, err := parseRecord(e.Value, fields)
		if err != nil {
			return records, d.fail(fmt.Errorf("%q: %w", e.Key, err))
		}
		records = append(records, record)
	}
	return records, nil
}

// Update writes some of the fields of a record.
func (d *db) Update(ctx context.Context, table, key string, values map[string][]byte) error {
	k := keyOf(table, key)
	for range maxUpdates {
		item, err := d.c.GetItem(ctx, k)
		if err != nil {
			return d.fail(err)
		}
		record, err := parseRecord(item.Value, nil)
		if err != nil {
			return d.fail(err)
		}
		for name, content := range values {
			record[name] = content
		}
		_, err = d.c.PutWith(ctx, k, appendRecord(nil, record), client.PutOptions{IfVersion: item.Version})
		if !errors.Is(err, client.ErrVersionMismatch) {
			return d.fail(err)
		}
	}
	return d.fail(errContended)
}

// Insert stores a record.
func (d *db) Insert(ctx context.Context, table, key string, values map[string][]byte) error {
	return d.fail(d.c.Put(ctx, keyOf(table, key), appendRecord(nil, values)))
}

// Delete removes a record.
func (d *db) Delete(ctx context.Context, table, key string) error {
	_, err := d.c.Delete(ctx, keyOf(table, key))
	return d.fail(err)
}

// BatchInsert stores records with one MultiPut.
func (d *db) BatchInsert(ctx context.Context, table string, keys []string, values []map[string][]byte) error {
	pairs := make([]client.Pair, len(keys))
	for i := range keys {
		pairs[i] = client.Pair{Key: keyOf(table, keys[i]), Value: appendRecord(nil, values[i])}
	}
	return d.fail(d.c.MultiPut(ctx, pairs))
}

// BatchRead gets records with one MultiGet.
func (d *db) BatchRead(ctx context.Context, table string, keys []string, fields []string) ([]map[string][]byte, error) {
	names := make([][]byte, len(keys))
	for i := range keys {
		names[i] = keyOf(table, keys[i])
	}
	results, err := d.c.MultiGet(ctx, names)
	if err != nil {
		return nil, d.fail(err)
	}
	records := make([]map[string][]byte, len(keys))
	for i, r := range results {
		if r.Err != nil {
			return nil, d.fail(r.Err)
		}
		if records[i], err = parseRecord(r.Value, fields); err != nil {
			return nil, d.fail(err)
		}
	}
	return records, nil
}

// BatchUpdate updates records one after the other: each has its own condition.
func (d *db) BatchUpdate(ctx context.Context, table string, keys []string, values []map[string][]byte) error {
	for i := range keys {
		if err := d.Update(ctx, table, keys[i], values[i]); err != nil {
			return err
		}
	}
	return nil
}

// BatchDelete removes records one after the other.
func (d *db) BatchDelete(ctx context.Context, table string, keys []string) error {
	for _, key := range keys {
		if err := d.Delete(ctx, table, key); err != nil {
			return err
		}
	}
	return nil
}
