package dlock

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// acknowledged waits for the replicas. A grant that too few have is released.
func (a *acquisition) acknowledged(c *conn, waited bool) error {
	if a.terms.replicas == 0 {
		return nil
	}
	var commands []command
	if waited || len(a.copies) > 1 {
		// WAIT waits for the writes of its connection. A repeat that gets the grant of an earlier copy writes nothing, and
		// Redis before 7.0.12 does not count a grant to a blocked connection as its write. A renewal is a write.
		commands = a.target.renew(a.owner, a.token, a.terms.lease)
	}
	timeout := a.ofReplicas(a.terms.replicasTimeout, time.Now())
	until := time.Now().Add(timeout + late)
	// No release follows if the server is silent: the server might execute it after the repeat has got the grant.
	replies, err := c.exchange(a.io, until, nil, append(commands, waitFor(a.terms.replicas, timeout))...)
	switch {
	case err != nil:
		a.isRenewalOpen = a.isRenewalOpen || len(commands) > 0
	case contains(replies, nil):
		return errNoHold
	default:
		if err = a.client.repeatable(a.target.keys[0], replies); err == nil {
			err = tooFew(replies, a.terms.replicas)
		}
	}
	if errors.Is(err, ErrTooFewReplicas) {
		if _, err := c.exchange(a.io, a.answerBy(), nil, a.target.releaseAll(a.owner)...); err == nil {
			a.copies = nil
		}
		return &failure{ErrTooFewReplicas, a.target.name, err}
	}
	return err
}

func waitFor(replicas int, timeout time.Duration) command {
	return command{"WAIT", strconv.Itoa(replicas), millis(timeout)}
}

// tooFew looks at the last reply, that to WAIT.
func tooFew(replies []any, wanted int) error {
	if err := firstError(replies); err != nil {
		return err
	}
	if number, ok := replies[len(replies)-1].(int64); !ok || number < int64(wanted) {
		return fmt.Errorf("%w: %d of %d", ErrTooFewReplicas, number, wanted)
	}
	return nil
}
