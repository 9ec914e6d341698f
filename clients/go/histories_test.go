package dlock

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The histories of tests/clients/histories say what every package decides. They need no server, no clock and no socket.

// machine is what plays a history: it takes an event, and says what is expected of it.
type machine interface {
	handles(now time.Time, event words)
	says(now time.Time, kind string) string
}

// words are an event: what happens, a number if it has one, and settings.
type words []string

func (w words) setting(name string) string {
	for _, each := range w[1:] {
		if value, ok := strings.CutPrefix(each, name+"="); ok {
			return value
		}
	}
	return ""
}

func (w words) millis(name string) time.Duration { return ms(w.setting(name)) }

func ms(text string) time.Duration {
	number, _ := strconv.Atoi(text)
	return time.Duration(number) * time.Millisecond
}

// epoch is when the clock of a history shows 0.
var epoch = time.Unix(1_000_000, 0)

func at(moment time.Time) string { return strconv.FormatInt(moment.Sub(epoch).Milliseconds(), 10) }

func begins(event words) machine {
	if event[0] == "granted" {
		return &keeping{}
	}
	return &attempting{}
}

func TestHistories(t *testing.T) {
	files, err := filepath.Glob("../../tests/clients/histories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	played := 0
	for _, file := range files {
		text, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer text.Close()
		var name string
		var playing machine
		failed := false
		lines := bufio.NewScanner(text)
		for number := 1; lines.Scan(); number++ {
			line := lines.Text()
			if title, ok := strings.CutPrefix(line, "history "); ok {
				name, playing, failed = title, nil, false
				played++
				continue
			}
			if line == "" || line[0] == '#' || failed {
				continue
			}
			happens, expected, _ := strings.Cut(line, ":")
			event := words(strings.Fields(happens))
			now := epoch.Add(ms(event[0]))
			event = event[1:]
			if playing == nil {
				playing = begins(event)
			}
			playing.handles(now, event)
			for _, each := range strings.Split(expected, ",") {
				each = strings.Join(strings.Fields(each), " ")
				if got := playing.says(now, each); each != "" && got != each {
					t.Errorf("%s:%d: %s: %q is %q", filepath.Base(file), number, name, each, got)
					failed = true
				}
			}
		}
	}
	if played <= 1000 {
		t.Errorf("only %d histories were played", played)
	}
}

// keeping is a hold with its heartbeat.
type keeping struct {
	validity
	heartbeat
	// The number of each command in validity, by its number in the history.
	numbers map[string]int
}

func (k *keeping) handles(now time.Time, event words) {
	number := 0
	if len(event) > 1 {
		number = k.numbers[event[1]]
	}
	if event[0] != "granted" {
		k.passes(now)
	}
	switch event[0] {
	case "granted":
		sent := epoch.Add(event.millis("sent"))
		k.numbers = map[string]int{}
		k.validity = newValidity(now, sent, event.millis("lease"), slices.Contains(event, "open"))
		k.heartbeat.ok(&k.validity, now, sent)
	case "sent":
		k.numbers[event[1]] = k.validity.sends(now, event.millis("lease"))
		k.heartbeat.sends(&k.validity, now)
	case "asked":
		k.numbers[event[1]] = k.asks(now)
	case "ok":
		if sent, ok := k.validity.ok(number); ok {
			k.heartbeat.ok(&k.validity, now, sent)
		}
	case "cut":
		k.cut(number)
		k.failed(&k.validity, now)
	case "refused":
		k.refused(number)
		k.failed(&k.validity, now)
	case "capped":
		k.refused(number)
		k.capped(now)
	case "left":
		k.left(number, ms(event[2]))
		k.checked(&k.validity)
	case "nil":
		k.gone()
	case "release":
		k.release()
	}
	k.passes(now)
}

func (k *keeping) says(_ time.Time, expected string) string {
	switch k.state {
	case isLost:
		return "lost"
	case isReleased:
		return "released"
	}
	if strings.HasPrefix(expected, "until") {
		return "until " + at(k.until)
	}
	switch k.next.what {
	case renews:
		return "renew " + at(k.next.at)
	case awaits:
		return "again " + at(k.next.at)
	case checks:
		return "check"
	}
	return ""
}
