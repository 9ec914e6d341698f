package dlock

import (
	"strconv"
	"strings"
	"time"
)

// attempting is an acquisition. The numbers of a history are not those of the commands.
type attempting struct {
	attempt
	next    turn
	numbers map[string]int
	waited  map[string]bool
}

func (a *attempting) handles(now time.Time, event words) {
	number := 0
	if len(event) > 1 {
		number = a.numbers[event[1]]
	}
	switch event[0] {
	case "acquire":
		l := limits{outage: event.millis("outage")}
		switch limit := event.setting("limit"); limit {
		case "none":
		case "try":
			l.isTry, l.ends = true, now.Add(defaultAnswer)
		default:
			l.ends = now.Add(ms(limit))
		}
		a.attempt = newAttempt(now, l, event.millis("lease"))
		a.numbers, a.waited = map[string]int{}, map[string]bool{}
		a.next = a.again()
	case "sent":
		if a.next.do == confirms {
			a.numbers[event[1]] = a.renews(now)
			return
		}
		a.numbers[event[1]], a.waited[event[1]] = a.sends(now), a.next.do == waits
	case "granted":
		a.next = a.granted(now, number, false)
	case "nil":
		a.next = a.nil(now, number, a.waited[event[1]])
	case "ok":
		a.next = a.ok(now, number, time.Time{})
	case "left":
		sent := now
		for _, each := range a.renewals {
			if each.number == number {
				sent = each.at
			}
		}
		a.next = a.ok(now, number, endOf(sent, ms(event[2])))
	case "gone":
		a.next = a.gone(now)
	case "cut":
		a.next = a.cut(now)
	case "refused":
		a.next = a.refused(now, number)
	case "error":
		a.next = a.failed(number)
	case "over":
		a.next = a.over(now)
	case "cancel":
		a.next = a.canceled()
	}
}

func (a *attempting) says(now time.Time, _ string) string {
	text := map[doing]string{
		tries: "try", waits: "wait", confirms: "confirm", endsGranted: "granted until", endsRefused: "refused",
		endsUnreachable: "unreachable", endsCanceled: "canceled", endsFailed: "failed",
	}[a.next.do]
	if a.next.fresh {
		text = "fresh " + text
	}
	switch {
	case a.next.do == waits:
		text += " " + strconv.FormatInt(a.block(now).Milliseconds(), 10)
	case a.next.do == endsGranted:
		text += " " + at(a.next.until)
	case a.next.do > endsGranted:
		text += " cleanup " + []string{"none", "leave", "release"}[a.next.cleanup]
	}
	return strings.TrimSpace(text)
}
