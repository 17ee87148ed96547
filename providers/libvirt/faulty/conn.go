package faulty

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Rule describes one kind of fault. Unset fields have no effect.
type Rule struct {
	// Skip is the number of matching calls to forward first.
	Skip int
	// Match is a function that selects the procedures to affect. Default: the rule affects all procedures.
	Match func(procedure uint32) bool
	// DropsCall is true if the proxy closes the connection instead of forwarding the call.
	DropsCall bool
	// LosesAnswer is true if the proxy forwards the call, but closes the connection instead of forwarding the answer.
	LosesAnswer bool
	// Hang is true if the proxy neither forwards nor answers the call.
	Hang bool
	// Refuse is the error with which the proxy answers the call. If Late is set, the proxy still forwards the call to
	// libvirtd after this delay.
	Refuse *Refusal
	Late   time.Duration
	// Answer replaces the content of libvirtd's successful answer. The content is encoded as in libvirt's protocol.
	Answer []byte
	// AfterEnd is how long the rule affects calls after a domain was destroyed. Default: the rule affects calls at any
	// time.
	AfterEnd time.Duration
	// Pad is the number of bytes added to each answer.
	Pad int
}

// Faults contains the rules for all wrapped connections. The zero value has no rules.
type Faults struct {
	// DropUploads answers uploads with success and discards their content. The hypervisor that libvirt simulates needs
	// this.
	DropUploads bool

	mu        sync.Mutex
	rules     []*Rule
	destroyed time.Time // time at which a domain was last destroyed
	late      sync.WaitGroup
}

// Inject adds a rule and returns a function that removes it.
func (f *Faults) Inject(r Rule) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &r)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rules = slices.DeleteFunc(f.rules, func(other *Rule) bool { return other == &r })
	}
}

// Wait returns when all delayed calls have been answered.
func (f *Faults) Wait() { f.late.Wait() }

// ruleFor returns the first rule that affects a call, or nil.
func (f *Faults) ruleFor(procedure uint32) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if r.Match != nil && !r.Match(procedure) || r.AfterEnd > 0 && time.Since(f.destroyed) > r.AfterEnd {
			continue
		}
		if r.Skip > 0 {
			r.Skip--
			continue
		}
		return r
	}
	return nil
}

func (f *Faults) observe(answer frame) {
	// Destroying a stopped domain fails and is not recorded.
	if answer.procedure() != DomainDestroyFlags || answer.status() != statusOK {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.destroyed = time.Now()
}

// Wrap adds the faults to a connection to libvirtd.
func (f *Faults) Wrap(server net.Conn) net.Conn {
	toDriver, answers := io.Pipe()
	c := &conn{Conn: server, faults: f, answers: answers, toDriver: toDriver, unansweredCalls: map[uint32]bool{},
		lostAnswers: map[uint32]bool{}, padded: map[uint32]int{}, droppedCalls: map[uint32]bool{}}
	go c.receive()
	return c
}

type conn struct {
	net.Conn
	faults   *Faults
	toDriver *io.PipeReader
	answers  *io.PipeWriter

	sending sync.Mutex
	unsent  frame // the beginning of an incomplete message of the driver

	mu sync.Mutex
	// The keys of these maps are serial numbers of calls.
	//   - unansweredCalls contains calls whose answers are not forwarded to the driver.
	//   - lostAnswers contains calls after whose answers the connection is closed.
	//   - droppedCalls contains uploads that are not forwarded to libvirtd.
	//   - padded contains the number of bytes to add to the answer.
	unansweredCalls, lostAnswers, droppedCalls map[uint32]bool
	padded                                     map[uint32]int
	pending                                    int // number of delayed calls, which keep the connection open
	closed                                     bool
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) { return c.toDriver.Read(p) }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	_ = c.answers.CloseWithError(net.ErrClosed)
	_ = c.toDriver.CloseWithError(net.ErrClosed)
	if c.pending > 0 {
		return nil
	}
	return c.Conn.Close()
}

// Write implements net.Conn. Write splits the data into messages.
func (c *conn) Write(p []byte) (int, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.unsent = append(c.unsent, p...)
	for len(c.unsent) >= lengthBytes {
		size := int(binary.BigEndian.Uint32(c.unsent))
		if len(c.unsent) < size {
			break
		}
		f := append(frame{}, c.unsent[:size]...)
		c.unsent = c.unsent[size:]
		if err := c.send(f); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// send forwards a message of the driver unless a rule prevents this.
func (c *conn) send(f frame) error {
	if f.kind() != typeCall {
		c.mu.Lock()
		unanswered, dropped := c.unansweredCalls[f.serial()], c.droppedCalls[f.serial()]
		c.mu.Unlock()
		switch {
		case dropped && f.status() == statusOK:
			c.deliver(f.success(typeStream))
			return nil
		case unanswered, dropped:
			return nil
		}
		return c.forward(f)
	}
	r := c.faults.ruleFor(f.procedure())
	if r == nil {
		return c.call(f)
	}
	if r.DropsCall {
		_ = c.Close()
		return net.ErrClosed
	}
	c.mu.Lock()
	if r.LosesAnswer {
		c.lostAnswers[f.serial()] = true
	}
	if r.Pad > 0 {
		c.padded[f.serial()] = r.Pad
	}
	if r.Hang || r.Refuse != nil {
		c.unansweredCalls[f.serial()] = true
	}
	c.mu.Unlock()
	switch {
	case r.Hang:
		return nil
	case r.Answer != nil:
		_, err := c.answers.Write(f.successWith(r.Answer))
		return err
	case r.Refuse == nil:
		return c.call(f)
	}
	if r.Late > 0 {
		c.forwardLate(f, r.Late)
	}
	// This write does not block, because the library reads in another goroutine.
	_, err := c.answers.Write(r.Refuse.replyTo(f))
	return err
}

// call forwards a call of the driver to libvirtd. If DropUploads is set, the proxy answers uploads itself.
func (c *conn) call(f frame) error {
	if f.procedure() != StorageVolUpload || !c.faults.DropUploads {
		return c.forward(f)
	}
	c.mu.Lock()
	c.droppedCalls[f.serial()] = true
	c.mu.Unlock()
	c.deliver(f.success(typeReply))
	return nil
}

func (c *conn) forward(f frame) error {
	_, err := c.Conn.Write(f)
	return err
}

// forwardLate forwards a call after a delay, even if the driver has closed the connection.
func (c *conn) forwardLate(f frame, after time.Duration) {
	c.mu.Lock()
	c.pending++
	c.mu.Unlock()
	c.faults.late.Add(1)
	time.AfterFunc(after, func() {
		c.sending.Lock()
		err := c.forward(f)
		c.sending.Unlock()
		if err != nil {
			c.finishLate()
		}
	})
}

// finishLate must be called when a delayed call was answered or can no longer be answered.
func (c *conn) finishLate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == 0 {
		return
	}
	c.pending--
	c.faults.late.Done()
	if c.closed && c.pending == 0 {
		_ = c.Conn.Close()
	}
}

func (c *conn) receive() {
	for {
		f, err := readFrame(c.Conn)
		if err != nil {
			_ = c.answers.CloseWithError(err)
			for range c.pendingCalls() {
				c.finishLate()
			}
			return
		}
		c.faults.observe(f)
		c.deliver(f)
	}
}

// deliver sends an answer to the driver unless a rule suppresses it.
func (c *conn) deliver(f frame) {
	c.mu.Lock()
	unanswered, lost, pad := c.unansweredCalls[f.serial()], c.lostAnswers[f.serial()], c.padded[f.serial()]
	c.mu.Unlock()
	switch {
	case unanswered:
		c.finishLate()
	case lost:
		_ = c.Close()
	case pad > 0:
		c.deliverPadded(f, pad)
	default:
		// Continue reading after the driver has closed the connection, because delayed calls are still answered.
		_, _ = c.answers.Write(f)
	}
}

func (c *conn) pendingCalls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending
}

func (c *conn) deliverPadded(f frame, pad int) {
	binary.BigEndian.PutUint32(f, uint32(len(f)+pad))
	if _, err := c.answers.Write(f); err != nil {
		return
	}
	zeros := make([]byte, 1<<20)
	for ; pad > 0; pad -= len(zeros) {
		if _, err := c.answers.Write(zeros[:min(pad, len(zeros))]); err != nil {
			return
		}
	}
}
