package telemetry

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/membership"
)

// elsewhere are numbers of the store that have metrics of their own, which are shown during the fill too.
var elsewhere = map[string]string{
	"ShardsFilled": "rdmakv_fill_shards", "FillKeys": "rdmakv_fill_keys",
	"ReclaimLatest": "rdmakv_reclaim_version", "ClockAhead": "rdmakv_clock_ahead_seconds",
}

// TestStoreMetrics: whatever the store, its watches and gossip count is shown,
// each number by one metric.
func TestStoreMetrics(t *testing.T) {
	eachNumber(t, slices.Concat(storeNumbers, logNumbers), elsewhere)
	eachNumber(t, watchNumbers, nil)
	eachNumber(t, gossipNumbers, nil)
}

// eachNumber sets one field of T after the other, and looks who shows it.
func eachNumber[T any](t *testing.T, table []numberOf[T], elsewhere map[string]string) {
	t.Helper()
	shown := make([]int, len(table))
	var st T
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			f, name := v.Field(i), prefix+v.Type().Field(i).Name
			zero := reflect.Zero(f.Type())
			switch {
			case f.Type() == reflect.TypeFor[time.Time]():
				f.Set(reflect.ValueOf(time.Unix(7, 0)))
			case f.Type() == reflect.TypeFor[membership.Refused](): // the last case, with its text
				continue
			case f.Kind() == reflect.Struct:
				walk(name+".", f)
				continue
			case f.CanUint():
				f.SetUint(7)
			case f.CanInt():
				f.SetInt(7)
			case f.Kind() == reflect.Bool:
				f.SetBool(true)
			default:
				continue // texts, tables
			}
			by := 0
			for j, n := range table {
				if n.value(&st) != 0 {
					by, shown[j] = by+1, shown[j]+1
				}
			}
			if want := boolNumber(elsewhere[name] == ""); float64(by) != want {
				t.Errorf("%T.%s is shown by %d metrics, want %v", st, name, by, want)
			}
			f.Set(zero)
		}
	}
	walk("", reflect.ValueOf(&st).Elem())
	for j, n := range shown {
		if n != 1 {
			t.Errorf("%v shows %d numbers of %T", table[j].desc.node, n, st)
		}
	}
}
