package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
)

// writeEDN writes a history as Knossos and Elle read it: an invocation and its completion are a line each, `:info` if the
// outcome is not known. The value is the lock, the token and the mode. A process is busy until its completion, and
// forever after an `:info`: its program goes on under the next number that is free.
func writeEDN(out io.Writer, lines []op) {
	type event struct {
		at   int64
		text string
	}
	var events []event
	// The time since which each number of a process is free.
	var free []int64
	for _, o := range lines {
		process := slices.IndexFunc(free, func(since int64) bool { return since < o.Call })
		if process < 0 {
			process, free = len(free), append(free, 0)
		}
		free[process] = math.MaxInt64
		if o.Return != nil {
			free[process] = max(*o.Return, o.Call)
		}
		tell := func(at int64, kind string) {
			text := fmt.Sprintf("{:process %d, :type :%s, :f :%s, :value [%q %d :%s], :time %d}",
				process, kind, o.Op, o.Lock, o.Token, cmp.Or(o.Mode, "any"), at*1000)
			events = append(events, event{at, text})
		}
		tell(o.Call, "invoke")
		switch {
		case o.Return == nil:
			tell(o.Call, "info")
		case o.Result == "refused" || o.Result == "lost":
			tell(*o.Return, "fail")
		default:
			tell(*o.Return, "ok")
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	for _, e := range events {
		fmt.Fprintln(out, e.text)
	}
}
