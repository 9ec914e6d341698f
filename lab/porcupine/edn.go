package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// writeEDN writes a history as Knossos and Elle read it: an invocation and its completion are a line each, `:info` if the
// outcome is not known. The value is the lock, the token and the mode.
func writeEDN(out io.Writer, lines []op) {
	type event struct {
		at   int64
		text string
	}
	var events []event
	processes := map[string]int{}
	for _, o := range lines {
		if _, known := processes[o.Process]; !known {
			processes[o.Process] = len(processes)
		}
		tell := func(at int64, kind string) {
			text := fmt.Sprintf("{:process %d, :type :%s, :f :%s, :value [%q %d :%s], :time %d}",
				processes[o.Process], kind, o.Op, o.Lock, o.Token, cmp.Or(o.Mode, "any"), at*1000)
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
