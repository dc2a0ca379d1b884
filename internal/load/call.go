package load

import "context"

// call makes the call for n keys of the block, from key i on.
func (w *worker) call(ctx context.Context, i, n int) (out outcome) {
	out.op = w.block.ops[i]
	if w.r.o.Batch > 1 {
		w.callMany(ctx, i, n, &out)
		return out
	}
	key, number := w.block.key(i, w.r.o.Keys.Size), w.block.keys[i]
	switch out.op {
	case OpGet:
		out.path = w.get(ctx, key, number, &out)
	case OpPut:
		w.settle(ctx, &out, w.put(ctx, key, number))
	case OpInsert:
		w.insert(ctx, key, &out)
	case OpRMW:
		var got outcome
		if w.get(ctx, key, number, &got); got.failed > 0 {
			out.failed++
		} else if got.ok > 0 {
			w.settle(ctx, &out, w.put(ctx, key, number))
		}
	case OpScan:
		got, err := w.store.Scan(ctx, key, w.block.span[i])
		out.scanned = int64(got)
		w.settle(ctx, &out, err)
	case OpDelete:
		w.settle(ctx, &out, w.store.Delete(ctx, key))
	}
	return out
}

// get gets a key and checks its value.
func (w *worker) get(ctx context.Context, key []byte, number uint64, out *outcome) Path {
	value, path, err := w.store.Get(ctx, key, w.batch.values[0])
	if err == nil {
		w.batch.values[0] = value // as large as it had to be
		err = w.r.values.check(value, number)
	}
	w.settle(ctx, out, err)
	return path
}

// put gives a key its next value.
func (w *worker) put(ctx context.Context, key []byte, number uint64) error {
	w.number++
	b := w.batch
	b.values[0] = w.r.values.make(b.values[0], number, w.number)
	return w.store.Put(ctx, key, b.values[0])
}

// newKey is the number of a key to be inserted: that of one that failed, or the
// next one.
func (w *worker) newKey() (uint64, error) {
	if n := len(w.again); n > 0 {
		key := w.again[n-1]
		w.again = w.again[:n-1]
		return key, nil
	}
	return w.r.frontier.take()
}

// insert stores a new key; room is where it is written out.
func (w *worker) insert(ctx context.Context, room []byte, out *outcome) {
	number, err := w.newKey()
	if err != nil {
		w.fail(ctx, out, err, 1)
		return
	}
	err = w.put(ctx, w.r.template.append(room[:0], number), number)
	if err == nil {
		w.r.frontier.inserted(number)
	} else {
		w.again = append(w.again, number)
	}
	w.settle(ctx, out, err)
}

// callMany makes a call for many keys of one operation.
func (w *worker) callMany(ctx context.Context, i, n int, out *outcome) {
	r, b := w.r, w.batch
	size := r.o.Keys.Size
	out.path = PathBatch
	for j := range n {
		b.errs[j] = nil
		b.keys[j], b.numbers[j] = w.block.key(i+j, size), w.block.keys[i+j]
	}
	switch out.op {
	case OpInsert:
		for j := range n {
			number, err := w.newKey()
			if err != nil {
				w.fail(ctx, out, err, int64(n-j))
				n = j
				break
			}
			b.keys[j], b.numbers[j] = r.template.append(b.keys[j][:0], number), number
		}
		fallthrough
	case OpPut:
		for j := range n {
			w.number++
			b.values[j] = r.values.make(b.values[j], b.numbers[j], w.number)
		}
		if n > 0 {
			w.many.PutMany(ctx, b.keys[:n], b.values[:n], b.errs[:n])
		}
	default:
		w.many.GetMany(ctx, b.keys[:n], b.values[:n], b.errs[:n])
		for j := range n {
			if b.errs[j] == nil {
				b.errs[j] = r.values.check(b.values[j], b.numbers[j])
			}
		}
	}
	for j := range n {
		if out.op == OpInsert {
			if b.errs[j] == nil {
				r.frontier.inserted(b.numbers[j])
			} else {
				w.again = append(w.again, b.numbers[j])
			}
		}
		w.settle(ctx, out, b.errs[j])
	}
}
