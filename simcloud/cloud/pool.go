package cloud

import "net/netip"

// pool allocates unique numbers below size. A released number is reused as late as possible.
type pool struct {
	size int
	next int
	used map[int]bool
}

func newPool(size int) *pool { return &pool{size: size, used: map[int]bool{}} }

func (p *pool) take() (int, bool) {
	if len(p.used) >= p.size {
		return 0, false
	}
	for p.used[p.next] {
		p.next = (p.next + 1) % p.size
	}
	n := p.next
	p.reserve(n)
	return n, true
}

func (p *pool) reserve(n int) {
	p.used[n] = true
	p.next = (n + 1) % p.size
}

func (p *pool) release(n int) { delete(p.used, n) }

// maxInstances is limited because each live instance needs its own pod network.
const maxInstances = 1 << 14

// The slot of a live instance determines its address in 10.0.0.0/8 and its network for 254 pods in 100.64.0.0/10. No
// traffic reaches these addresses.

// slotAddress skips addresses that end in 0 or 255: they look like network or broadcast addresses.
func slotAddress(slot int) netip.Addr {
	low, high := slot%254+1, slot/254
	return netip.AddrFrom4([4]byte{10, 0, byte(high), byte(low)})
}

func slotPodNet(slot int) netip.Prefix {
	high := 64 + slot>>8
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(high), byte(slot), 0}), 24)
}
