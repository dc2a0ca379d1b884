package cluster

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestHashPart(t *testing.T) {
	for _, tc := range []struct{ key, want string }{
		{"", ""},
		{"plain", "plain"},
		{"{user:7}:name", "user:7"},
		{"a{b}c", "b"},
		{"a{}c", "a{}c"},          // an empty tag is no tag
		{"a{}{b}", "a{}{b}"},      // and only the first brace counts
		{"a{b", "a{b"},            // never closed
		{"a}b{c}", "c"},           // a closing brace before the opening one
		{"{{x}}", "{x"},           // up to the first closing brace
		{"{a}{b}", "a"},           // the first tag wins
		{"x{\x00}y", "\x00"},      // bytes, not text
		{"{", "{"},                // nothing follows
		{"}", "}"},                // nothing opens
		{"\xff{\xfe}", "\xfe"},    // not UTF-8
		{"long{tag}tail", "tag"},  //
		{"{tag}", "tag"},          //
		{"pre{tag}{}", "tag"},     //
		{"pre{ta{g}post", "ta{g"}, // an opening brace inside a tag is part of it
		{"pre{tag}post}", "tag"},  //
		{"{ }", " "},              // a blank is a tag
		{"no tag } at all {", "no tag } at all {"},
	} {
		if got := HashPart([]byte(tc.key)); string(got) != tc.want {
			t.Errorf("HashPart(%q) = %q, want %q", tc.key, got, tc.want)
		}
	}
}

// Where a key lives is part of the storage format. If this test fails, the
// function is wrong, not the table.
func TestShardOfGolden(t *testing.T) {
	for _, tc := range []struct {
		key    string
		shards int
		want   uint16
	}{
		{"", 32, 25},
		{"a", 32, 27},
		{"key:000000000001", 32, 7},
		{"key:000000000002", 32, 1},
		{"{user:7}:name", 32, 15},
		{"user:7", 32, 15},
		{"a", 1, 0},
		{"a", 4096, 3675},
		{"a", 3, 2},
	} {
		if got := ShardOf([]byte(tc.key), tc.shards); got != tc.want {
			t.Errorf("ShardOf(%q, %d) = %d, want %d", tc.key, tc.shards, got, tc.want)
		}
	}
}

func TestShardOfProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag := rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "tag")
		shards := rapid.IntRange(1, MaxShards).Draw(t, "shards")
		if bytes.ContainsAny(tag, "{}") {
			return
		}
		want := ShardOf(tag, shards)
		if int(want) >= shards {
			t.Fatalf("shard %d of %d", want, shards)
		}
		suffix := rapid.SliceOf(rapid.Byte()).Draw(t, "suffix")
		key := append(append(append([]byte("p{"), tag...), '}'), suffix...)
		if got := ShardOf(key, shards); got != want {
			t.Fatalf("ShardOf(%q) = %d, but its tag alone gives %d", key, got, want)
		}
	})
}

// Keys in sequence, the commonest naming, spread evenly: no shard of 32 has
// more than 1.2 times its fair share of 100,000.
func TestShardOfSpread(t *testing.T) {
	const keys, shards = 100_000, 32
	var counts [shards]int
	for i := range keys {
		counts[ShardOf(fmt.Appendf(nil, "user:%08d", i), shards)]++
	}
	for s, n := range counts {
		if n < keys/shards*8/10 || n > keys/shards*12/10 {
			t.Errorf("shard %d has %d keys, a fair share is %d", s, n, keys/shards)
		}
	}
}

func TestShardOfPanicsOnNonsense(t *testing.T) {
	for _, shards := range []int{-1, 0, MaxShards + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("ShardOf with %d shards did not panic", shards)
				}
			}()
			ShardOf([]byte("k"), shards)
		}()
	}
}

func TestShardOfAllocates(t *testing.T) {
	key := []byte("{user:7}:name")
	if n := testing.AllocsPerRun(100, func() { ShardOf(key, 32) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
