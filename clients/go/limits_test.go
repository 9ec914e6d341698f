package dlock

import (
	"testing"
	"time"
)

func TestLimitsAreThoseOfTheCallerAndOfItsContext(t *testing.T) {
	now, none := seconds(100), time.Time{}
	for name, test := range map[string]struct {
		terms    terms
		deadline time.Time
		ends     float64 // -1: never
		gives    float64 // when it gives up, if a server answered last at 90
		answer   float64 // until when an answer is waited for
		block    int     // ms
	}{
		"none":                       {terms{outage: 30 * time.Second}, none, -1, 120, 101, 0},
		"a wait":                     {terms{limited: true, wait: 5 * time.Second}, none, 105, 105, 101, 5000},
		"a short wait":               {terms{limited: true, wait: 300 * time.Microsecond}, none, 100.0003, 100.0003, 100.1503, 1},
		"a try":                      {terms{limited: true}, none, 101, 101, 101, 1000},
		"a deadline":                 {terms{}, seconds(102), 102, 102, 101, 2000},
		"an earlier deadline":        {terms{limited: true, wait: 5 * time.Second}, seconds(100.5), 100.5, 100.5, 100.65, 500},
		"a later deadline":           {terms{limited: true, wait: 5 * time.Second}, seconds(109), 105, 105, 101, 5000},
		"a try and a deadline":       {terms{limited: true}, seconds(100.2), 100.2, 100.2, 100.35, 200},
		"a deadline that has passed": {terms{}, seconds(99), 99, 99, 99.15, 1},
	} {
		l := limitsFrom(now, test.terms, test.deadline)
		if test.ends < 0 != l.ends.IsZero() || test.ends >= 0 && !l.ends.Equal(seconds(test.ends)) {
			t.Errorf("%s: ends at %v", name, l.ends)
		}
		if gives := l.givesUp(seconds(90)); !gives.Equal(seconds(test.gives)) {
			t.Errorf("%s: gives up at %v", name, gives)
		}
		if by := l.answerBy(now, seconds(90)); !by.Equal(seconds(test.answer)) {
			t.Errorf("%s: answer by %v", name, by)
		}
		if block := l.block(now); block != time.Duration(test.block)*time.Millisecond {
			t.Errorf("%s: BLOCK %v", name, block)
		}
		if isTry := test.terms.limited && test.terms.wait == 0; l.isTry != isTry {
			t.Errorf("%s: a try: %v", name, l.isTry)
		}
	}
}

// An acquisition ends by its limit plus 250 ms. Answers and confirmations end by that limit plus 200 ms, even if a grant
// is read at the last moment. The rest is for the other steps.
func TestNoStepIsAllowedMoreThanTheLimitOfAll(t *testing.T) {
	l := limits{ends: seconds(101)}
	for _, now := range []float64{100, 100.9, 101, 101.145, 101.2, 102} {
		for name, by := range map[string]time.Time{
			"answer": l.answerBy(seconds(now), seconds(now)), "confirmation": l.confirmBy(seconds(now), seconds(now)),
		} {
			if by.After(l.ends.Add(200 * time.Millisecond)) {
				t.Errorf("at %v: %s by %v", now, name, by)
			}
		}
	}
	if by := l.confirmBy(seconds(101.149), seconds(101)); by.Before(seconds(101.19)) {
		t.Errorf("no time to confirm what came in time: %v", by)
	}
}
