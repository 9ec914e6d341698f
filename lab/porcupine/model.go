package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// op is a line of a history: docs/chaos.md says what it means.
type op struct {
	Process string `json:"process"`
	Op      string `json:"op"`
	Lock    string `json:"lock"`
	Mode    string `json:"mode"`
	Owner   string `json:"owner"`
	Call    int64  `json:"call"`
	Return  *int64 `json:"return"`
	Result  string `json:"result"`
	Token   uint64 `json:"token"`
	Lease   int64  `json:"lease"`
	Until   int64  `json:"until"`
	Entries int    `json:"entries"`
	Limit   int    `json:"limit"`
	Slot    *int   `json:"slot"`
}

// who is the owner. A history of programs names none: each acquisition of theirs has an owner of its own.
func (o op) who() string { return cmp.Or(o.Owner, fmt.Sprintf("%s:%d", o.Process, o.Token)) }

// excludes tells whether a mode needs the lock for itself. Readers are requests for a permit without a limit.
func excludes(mode string) bool { return mode == "exclusive" || mode == "write" }

// hold is one of the holds of a lock. An owner may have one that excludes others, and a shared one.
type hold struct {
	token   uint64
	mode    string
	owner   string
	entries int
	slot    int
}

// lock is the state of one lock: its holds, and the highest token.
type lock struct {
	holds []hold
	last  uint64
}

// model is the contract: who may enter, who is in, and that tokens rise. `end` is what nobody sees: a lease that has
// run out, or a release without an answer.
var model = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(state, input, _ any) (bool, any) {
		l, o := state.(lock), input.(op)
		in := slices.ContainsFunc(l.holds, o.is)
		switch {
		case o.Op == "acquire":
			return l.admits(o), l.with(o)
		case o.Op == "held":
			return in, l
		case o.Op == "release" && o.Result == "lost":
			return !in, l
		case o.Op == "release":
			return in, l.without(o)
		}
		return true, l.without(o) // end
	},
	Equal: func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) },
	DescribeOperation: func(input, _ any) string {
		o := input.(op)
		return fmt.Sprintf("%s %s %s %d: %s", o.Process, o.Op, o.Mode, o.Token, o.Result)
	},
	DescribeState: func(state any) string { return fmt.Sprint(state.(lock).holds) },
}

// admits tells whether a request may enter beside the holds, with a token that is higher than all before. Only an owner
// that enters again keeps the token that it has.
func (l lock) admits(o op) bool {
	entries, rises := max(1, o.Entries), o.Token > l.last
	for _, h := range l.holds {
		own := h.owner == o.who()
		if !own && (excludes(h.mode) || excludes(o.Mode)) {
			return false
		}
		if own && excludes(h.mode) == excludes(o.Mode) {
			rises = h.token == o.Token
		}
		if !excludes(h.mode) {
			entries += h.entries
		}
		if o.Slot != nil && h.slot == *o.Slot {
			return false
		}
	}
	fits := o.Mode != "permit" || entries <= o.Limit && (o.Slot == nil || *o.Slot < o.Limit)
	return rises && fits
}

func (l lock) with(o op) lock {
	slot := -1
	if o.Slot != nil {
		slot = *o.Slot
	}
	holds := slices.Clone(l.holds)
	if at := slices.IndexFunc(holds, o.is); at >= 0 {
		holds[at].entries += max(1, o.Entries)
		return lock{holds, l.last}
	}
	return lock{append(holds, hold{o.Token, o.Mode, o.who(), max(1, o.Entries), slot}), max(l.last, o.Token)}
}

func (l lock) without(o op) lock {
	return lock{slices.DeleteFunc(slices.Clone(l.holds), o.is), l.last}
}

// is tells whether an operation is about this hold: nobody else releases it, or says that it is held.
func (o op) is(h hold) bool { return h.token == o.Token && h.mode == o.Mode && h.owner == o.who() }

// grant is a hold that nobody has certainly released: it may end by itself from `end.Call` on.
type grant struct {
	end     op
	claimed bool
}

// operations turns the lines about one lock into what the model knows. A refusal, and an acquisition whose outcome is
// not known, change nothing that others may see. A hold ends by itself when its time is over, or when its program is told
// that it is lost: nobody else gets in before.
func operations(lines []op) []porcupine.Operation {
	var ops []porcupine.Operation
	clients := map[string]int{}
	add := func(o op, ends int64) {
		if _, known := clients[o.Process]; !known {
			clients[o.Process] = len(clients)
		}
		ops = append(ops, porcupine.Operation{ClientId: clients[o.Process], Input: o, Call: o.Call, Return: max(ends, o.Call)})
	}
	open := map[hold]*grant{}
	for _, o := range lines {
		of := open[hold{token: o.Token, mode: o.Mode}]
		if o.Result == "granted" {
			of = &grant{end: o}
			of.end.Op, of.end.Owner, of.end.Process, of.end.Call = "end", o.who(), "time "+o.Process, o.Call+o.Lease
			open[hold{token: o.Token, mode: o.Mode}] = of
		}
		if o.Op != "lost" && o.Result != "refused" && o.Result != "unknown" {
			add(o, *o.Return)
		}
		switch {
		case of == nil:
		case o.Op == "held":
			// A session may end before the lease: the first claim of its program says when.
			if !of.claimed || o.Until > of.end.Call {
				of.end.Call = o.Until
			}
			of.claimed = true
		case o.Result == "released":
			delete(open, hold{token: o.Token, mode: o.Mode})
		case o.Op == "release" || o.Op == "lost":
			of.end.Call = min(of.end.Call, o.Call)
		}
	}
	for _, of := range open {
		add(of.end, math.MaxInt64)
	}
	return ops
}
