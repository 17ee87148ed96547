package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// speedPause is the time between two samples. The samples take a hundredth of one core.
	speedPause   = 250 * time.Millisecond
	samplePieces = 100
)

// speedometer measures the speed of the computer during another measurement. On shared hardware, other virtual machines
// can halve the speed of a core within minutes. The kernel does not report this as steal time. The speedometer repeats
// a fixed piece of work and measures its processor time. The work fits into the core's own cache, so the measured
// processes do not slow it down.
type speedometer struct {
	work pieceOfWork
	done chan struct{}
	mean chan float64
}

func newSpeedometer() *speedometer {
	s := &speedometer{work: newPieceOfWork(), done: make(chan struct{}), mean: make(chan float64, 1)}
	go s.run()
	return s
}

// stop ends the measurement. The result is the mean number of repetitions of a fixed piece of work in one second of
// processor time.
func (s *speedometer) stop() float64 {
	close(s.done)
	return <-s.mean
}

func (s *speedometer) run() {
	runtime.LockOSThread() // threadTime measures only the current thread.
	defer runtime.UnlockOSThread()
	var sum float64
	for n := 1.0; ; n++ {
		sum += s.sample()
		select {
		case <-s.done:
			s.mean <- sum / n
			return
		case <-time.After(speedPause):
		}
	}
}

// sample measures how many times the piece of work can be done in one second of processor time.
func (s *speedometer) sample() float64 {
	s.work.do() // Warm up the processor's caches.
	begun := threadTime()
	for range samplePieces {
		s.work.do()
	}
	return samplePieces / (threadTime() - begun).Seconds()
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // Only invalid arguments cause an error.
	}
	return time.Duration(t.Nano())
}

// pieceOfWork is a JSON text. To validate this text takes a fixed amount of work, and allocates no memory.
type pieceOfWork []byte

func newPieceOfWork() pieceOfWork {
	var text bytes.Buffer
	text.WriteByte('[')
	for i := range 30 {
		fmt.Fprintf(&text,
			`{"name":"machine-%d","labels":{"a.example/b":"c"},"replicas":%d,"ready":true,"list":[1.5,null,"x"]},`, i*7919, i)
	}
	text.WriteString("{}]")
	return text.Bytes()
}

func (w pieceOfWork) do() {
	if !json.Valid(w) {
		panic("the text is not JSON")
	}
}
