package load

import (
	"context"
	"errors"
	"testing"
)

// TestDraw: the keys are those of the records, of one length, the same ones for
// the same seed, and the popular ones of a Zipfian choice are drawn more often.
func TestDraw(t *testing.T) {
	o := Options{
		Open:    func(context.Context, int) (Store, error) { return nil, errors.New("not opened") },
		Records: 1000, Keys: Keys{Prefix: "key:", Size: 16}, Values: FixedSize(8), Mix: Mix{OpGet: 1},
		Choice: Zipfian, Workers: 1, Operations: 1, Seed: 7,
	}
	const n = 20_000
	keys, err := o.Draw(n)
	if err != nil || len(keys) != n {
		t.Fatal(len(keys), err)
	}
	again, err := o.Draw(n)
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := o.DrawNumbers(n)
	if err != nil || len(numbers) != n {
		t.Fatal(len(numbers), err)
	}
	known := map[string]int{}
	for i := range o.Records {
		known[string(o.Keys.Append(nil, i))] = 0
	}
	most := 0
	for i, key := range keys {
		if string(key) != string(again[i]) {
			t.Fatalf("draw %d is %s, then %s", i, key, again[i])
		}
		if want := o.Keys.Append(nil, uint64(numbers[i])); string(key) != string(want) {
			t.Fatalf("draw %d is %s, its number %d", i, key, numbers[i])
		}
		if _, ok := known[string(key)]; !ok {
			t.Fatalf("%q is no key of a record", key)
		}
		known[string(key)]++
		most = max(most, known[string(key)])
	}
	if mean := n / int(o.Records); most < 10*mean {
		t.Errorf("the most popular key was drawn %d times, where the mean is %d", most, mean)
	}
	o.Workers = 0
	if _, err := o.Draw(1); !errors.Is(err, ErrOptions) {
		t.Errorf("options without callers: %v", err)
	}
}
