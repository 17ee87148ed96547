package driver

import (
	"context"
	"fmt"

	"github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/libvirt/machine"
	"machinist.dev/machinist/providers/libvirt/seed"
)

// launch is a Create under way.
type launch struct {
	*hypervisor
	own     owner
	spec    machine.Spec
	req     provider.CreateRequest
	id      uuid.UUID
	attempt string
}

// Create implements provider.Driver.
func (d *Driver) Create(ctx context.Context, req provider.CreateRequest) (in *provider.Instance, err error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	if req.Token == "" {
		return nil, provider.Errorf(provider.InvalidArgument, "the token of machine %s/%s is empty", req.Machine.Namespace,
			req.Machine.Name)
	}
	l := &launch{own: own, spec: spec, req: req, attempt: own.attemptOf(req.Token)}
	l.id = own.domainUUID(l.attempt)
	if _, busy := d.creating.LoadOrStore(l.id, true); busy {
		return nil, provider.Errorf(provider.Aborted, "another call is making domain %s", l.id)
	}
	defer d.creating.Delete(l.id)
	err = d.with(ctx, req.Class.Credentials, "", func(h *hypervisor) error {
		l.hypervisor = h
		in, err = l.run(ctx)
		return err
	})
	return in, err
}

func (l *launch) run(ctx context.Context) (*provider.Instance, error) {
	all, err := l.made(ctx)
	if err != nil {
		return nil, err
	}
	in, d, err := l.preferred(ctx, all)
	if err != nil {
		return nil, err
	}
	if in != nil {
		return l.take(ctx, in, d)
	}
	if err := l.free(ctx); err != nil {
		return nil, err
	}
	text, err := l.prepare(ctx)
	if err != nil {
		return nil, err
	}
	made, err := l.DomainCreateXML(text, 0)
	if err != nil {
		return nil, l.refused(ctx, err)
	}
	// From here on it exists, whatever happens.
	if err := l.persist(ctx, made, text); err != nil {
		return nil, existing(err)
	}
	created, err := l.described(ctx, made)
	if err == nil {
		in, err = l.instance(ctx, created)
	}
	return in, existing(err)
}

// made are the owner's domains. Of a Machine's first attempt they have its name: nothing was made or adopted before,
// and to ask for the metadata of every domain takes a call each.
func (l *launch) made(ctx context.Context) ([]*domain, error) {
	if !naming.IsFirst(l.own.machine, l.req.Token) {
		return l.ownedBy(ctx, l.own)
	}
	return l.domains(ctx, func(d *domain) bool { return l.own.owns(d.metadata) }, func(d libvirt.Domain) bool {
		return naming.IsOf(d.Name, naming.Base(l.own.cluster, l.own.machine))
	})
}

// take returns the domain that is there already.
func (l *launch) take(ctx context.Context, in *provider.Instance, d *domain) (*provider.Instance, error) {
	if in.State == provider.StateTerminating {
		return nil, provider.Errorf(provider.AlreadyExists, "domain %s, which the token made, is being deleted", in.ProviderID)
	}
	if half, err := l.halfStarted(ctx, in, d); err != nil {
		return nil, err
	} else if half {
		return nil, provider.Errorf(provider.Aborted,
			"domain %s is being started by an earlier call, or libvirtd removes it because it ended meanwhile", in.ProviderID)
	}
	if uuid.UUID(d.UUID) != l.id {
		return in, nil // Another attempt's, or an adopted one.
	}
	if d.metadata.Spec != specHash(l.spec) || !resized(d.metadata, l.spec) {
		return nil, provider.Errorf(provider.AlreadyExists, "domain %s was made by the same token from another providerSpec",
			in.ProviderID)
	}
	if in.State != provider.StateRunning {
		return in, nil
	}
	persistent, err := l.DomainIsPersistent(d.Domain)
	if err != nil {
		return nil, existing(translate(ctx, err, "check domain "+in.ProviderID))
	}
	if persistent == 0 {
		text, err := l.DomainGetXMLDesc(d.Domain, libvirt.DomainXMLSecure|libvirt.DomainXMLInactive|
			libvirt.DomainXMLMigratable)
		if err != nil {
			return nil, existing(translate(ctx, err, "check domain "+in.ProviderID))
		}
		return in, existing(l.persist(ctx, d.Domain, text))
	}
	return in, existing(l.autostart(ctx, d.Domain))
}

// free refuses a name or a UUID that a domain of others has: libvirt would define it anew.
func (l *launch) free(ctx context.Context) error {
	if _, err := l.DomainLookupByUUID(libvirt.UUID(l.id)); err == nil {
		return provider.Errorf(provider.AlreadyExists, "domain %s, which the token made, is not the machine's any more",
			providerID(libvirt.UUID(l.id)))
	} else if !absent(err) {
		return translate(ctx, err, "look for domain "+l.id.String())
	}
	if _, err := l.DomainLookupByName(l.name()); err == nil {
		return provider.Errorf(provider.FailedPrecondition,
			"the hypervisor has a domain called %s that is not the machine's: rename or remove it", l.name())
	} else if !absent(err) {
		return translate(ctx, err, "look for domain "+l.name())
	}
	return nil
}

// name is that of the domain and of its node.
func (l *launch) name() string { return naming.Instance(l.own.cluster, l.own.machine, l.req.Token) }

// prepare makes the volumes and describes the domain.
func (l *launch) prepare(ctx context.Context) (string, error) {
	p, err := l.volumesFor(ctx)
	if err != nil {
		return "", err
	}
	if err := l.boot(ctx, &p); err != nil {
		return "", err
	}
	m := metadata{
		Attempt: l.attempt, Spec: specHash(l.spec), VCPUs: l.spec.VCPUs, MemoryMiB: l.spec.MemoryMiB,
		Version: l.req.Version, Created: now(), Zone: l.spec.Zone,
		Type: typeOf(l.spec), Addresses: l.spec.AddressSource,
	}
	l.own.identify(&m)
	m.Volumes = append([]volumeReference{p.root}, p.disks...)
	if p.seed.Name != "" {
		m.Volumes = append(m.Volumes, p.seed)
	}
	if p.console != "" {
		m.Volumes = append(m.Volumes, volumeReference{l.spec.Volume.Pool, l.own.volumeName(l.attempt, partConsole)})
	}
	text, err := describe(l.id, l.name(), l.spec, m, p)
	if err != nil {
		return "", provider.Errorf(provider.Internal, "the domain cannot be described")
	}
	return text, nil
}

// volumesFor makes the volumes of the domain, or takes those of an earlier call.
func (l *launch) volumesFor(ctx context.Context) (p parts, err error) {
	root := volumeXML{
		Capacity: sizeXML{"bytes", uint64(l.spec.Volume.SizeGiB) << 30}, Target: volumeTargetXML{Format: formatXML{"qcow2"}},
	}
	if l.spec.Volume.Base != "" {
		base, err := l.existing(ctx, l.spec.Volume.BasePool, "volume.basePool", l.spec.Volume.Base, "volume.base")
		if err != nil {
			return p, err
		}
		if base.Capacity.Bytes > root.Capacity.Bytes {
			e := provider.Errorf(provider.FailedPrecondition, "%d GiB are less than the %d bytes of the volume %.64q, its base",
				l.spec.Volume.SizeGiB, base.Capacity.Bytes, l.spec.Volume.Base)
			e.Field = "volume.sizeGiB"
			return p, e
		}
		root.Backing = &backingXML{Path: base.Target.Path, Format: base.Target.Format}
	}
	if p.root, _, err = l.make(ctx, l.spec.Volume.Pool, "volume.pool", partRoot, root); err != nil {
		return p, err
	}
	for i, d := range l.spec.Disks {
		field := fmt.Sprintf("disks[%d].pool", i)
		v, _, err := l.make(ctx, d.Pool, field, partDisk+d.Name, volumeXML{
			Capacity: sizeXML{"bytes", uint64(d.SizeGiB) << 30}, Target: volumeTargetXML{Format: formatXML{"qcow2"}},
		})
		if err != nil {
			return p, err
		}
		p.disks = append(p.disks, v)
	}
	if l.spec.ConsoleLog {
		_, v, err := l.make(ctx, l.spec.Volume.Pool, "volume.pool", partConsole, volumeXML{
			Capacity: sizeXML{"bytes", 0}, Target: volumeTargetXML{Format: formatXML{"raw"}},
		})
		if err != nil {
			return p, err
		}
		if p.console, err = l.StorageVolGetPath(v); err != nil {
			return p, translate(ctx, err, "find the volume of the console")
		}
	}
	if !l.req.UserData.Empty() {
		p.seed, err = l.makeSeed(ctx)
	}
	return p, err
}

// make makes one of the domain's volumes.
func (l *launch) make(ctx context.Context, pool, field, part string, v volumeXML) (volumeReference, libvirt.StorageVol,
	error) {
	v.Name = l.own.volumeName(l.attempt, part)
	in, err := l.pool(ctx, pool, field)
	if err != nil {
		return volumeReference{}, libvirt.StorageVol{}, err
	}
	made, err := l.ensure(ctx, in, v, field)
	return volumeReference{pool, v.Name}, made, err
}

// makeSeed makes the volume with the user data. It is written each time: an earlier call may have been cut short.
func (l *launch) makeSeed(ctx context.Context) (volumeReference, error) {
	content := seed.Image(seed.Data{
		InstanceID: l.id.String(), HostName: l.name(), UserData: l.req.UserData.Reveal(), NetworkConfig: l.spec.NetworkConfig,
	})
	ref, v, err := l.make(ctx, l.spec.SeedPool, "seedPool", partSeed, volumeXML{
		Capacity: sizeXML{"bytes", uint64(len(content))}, Target: volumeTargetXML{Format: formatXML{"raw"}},
	})
	if err == nil {
		err = l.fill(ctx, v, content)
	}
	return ref, err
}

// boot finds the kernel.
func (l *launch) boot(ctx context.Context, p *parts) error {
	k := l.spec.Kernel
	if k == nil {
		return nil
	}
	image, err := l.existing(ctx, k.Pool, "kernel.pool", k.Image, "kernel.image")
	if err != nil {
		return err
	}
	p.kernel = image.Target.Path
	if k.Initrd == "" {
		return nil
	}
	initrd, err := l.existing(ctx, k.Pool, "kernel.pool", k.Initrd, "kernel.initrd")
	p.initrd = initrd.Target.Path
	return err
}

// refused is for a domain that libvirt has not started. Nothing of it is left but its volumes, which the next call
// takes.
func (l *launch) refused(ctx context.Context, err error) error {
	attempted := "start domain " + l.name()
	switch {
	case codeOf(err) == libvirt.ErrOk:
	case codeOf(err) == libvirt.ErrNoNetwork, has(err, "cannot get interface mtu", "network '"):
		return at(provider.Errorf(provider.FailedPrecondition,
			"%s: one of the networks or bridges is not there, or not active", attempted), "networks")
	case codeOf(err) == libvirt.ErrOperationInvalid, has(err, "already exists"):
		return provider.Errorf(provider.Aborted, "%s: libvirt has one of that name or UUID by now", attempted)
	}
	return translate(ctx, err, attempted)
}

// persist makes a domain outlive its end, and start with the hypervisor.
func (l *launch) persist(ctx context.Context, d libvirt.Domain, text string) error {
	if _, err := l.DomainDefineXMLFlags(text, 0); err != nil {
		return translate(ctx, err, "make domain "+providerID(d.UUID)+" persistent")
	}
	return l.autostart(ctx, d)
}

func (l *launch) autostart(ctx context.Context, d libvirt.Domain) error {
	return translate(ctx, l.DomainSetAutostart(d, 1), "make domain "+providerID(d.UUID)+" start with the hypervisor")
}

// existing is for an error of a call whose domain exists: its code must not say that nothing was made.
func existing(err error) error {
	if err == nil || provider.CodeOf(err).Ambiguous() {
		return err
	}
	return &provider.Error{Code: provider.Aborted, Message: err.Error(), Cause: err}
}
