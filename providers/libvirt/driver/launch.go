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
	if _, busy := d.creatingDomains.LoadOrStore(l.id, true); busy {
		return nil, provider.Errorf(provider.Aborted, "another call is creating domain %s", l.id)
	}
	defer d.creatingDomains.Delete(l.id)
	err = d.withHypervisor(ctx, req.Class.Credentials, "", func(h *hypervisor) error {
		l.hypervisor = h
		in, err = l.run(ctx)
		return err
	})
	return in, err
}

func (l *launch) run(ctx context.Context) (*provider.Instance, error) {
	all, err := l.existingDomains(ctx)
	if err != nil {
		return nil, err
	}
	in, d, err := l.preferredInstance(ctx, all)
	if err != nil {
		return nil, err
	}
	if in != nil {
		return l.reuse(ctx, in, d)
	}
	if err := l.checkNotTaken(ctx); err != nil {
		return nil, err
	}
	text, err := l.prepare(ctx)
	if err != nil {
		return nil, err
	}
	started, err := l.DomainCreateXML(text, 0)
	if err != nil {
		return nil, l.startError(ctx, err)
	}
	// The domain exists now, so the error code must not imply that nothing was created.
	if err := l.persist(ctx, started, text); err != nil {
		return nil, ambiguousError(err)
	}
	created, err := l.readMetadata(ctx, started)
	if err == nil {
		in, err = l.instance(ctx, created)
	}
	return in, ambiguousError(err)
}

// existingDomains returns the owner's domains. In the first attempt, a domain of the Machine must have the Machine's
// name. So existingDomains reads only the metadata of domains with this name, because each read costs a call.
func (l *launch) existingDomains(ctx context.Context) ([]*domain, error) {
	if !naming.IsFirst(l.own.machine, l.req.Token) {
		return l.domainsOf(ctx, l.own)
	}
	return l.listDomains(ctx, func(d *domain) bool { return l.own.owns(d.metadata) }, func(d libvirt.Domain) bool {
		return naming.IsOf(d.Name, naming.Base(l.own.cluster, l.own.machine))
	})
}

func (l *launch) reuse(ctx context.Context, in *provider.Instance, d *domain) (*provider.Instance, error) {
	if in.State == provider.StateTerminating {
		return nil, provider.Errorf(provider.AlreadyExists,
			"domain %s, which was created with this token, is being deleted", in.ProviderID)
	}
	if starting, err := l.halfStarted(ctx, in, d); err != nil {
		return nil, err
	} else if starting {
		return nil, provider.Errorf(provider.Aborted,
			"domain %s is being started by an earlier call, or libvirtd will remove it after an interrupted start", in.ProviderID)
	}
	if uuid.UUID(d.UUID) != l.id {
		return in, nil // This is the domain of another attempt, or an adopted domain.
	}
	if d.metadata.Spec != specHash(l.spec) || !hasSizes(d.metadata, l.spec) {
		return nil, provider.Errorf(provider.AlreadyExists, "domain %s was created with this token from another providerSpec",
			in.ProviderID)
	}
	if in.State != provider.StateRunning {
		return in, nil
	}
	persistent, err := l.DomainIsPersistent(d.Domain)
	if err != nil {
		return nil, ambiguousError(translate(ctx, err, "check domain "+in.ProviderID))
	}
	if persistent == 0 {
		text, err := l.DomainGetXMLDesc(d.Domain, libvirt.DomainXMLSecure|libvirt.DomainXMLInactive|
			libvirt.DomainXMLMigratable)
		if err != nil {
			return nil, ambiguousError(translate(ctx, err, "check domain "+in.ProviderID))
		}
		return in, ambiguousError(l.persist(ctx, d.Domain, text))
	}
	return in, ambiguousError(l.autostart(ctx, d.Domain))
}

// checkNotTaken fails if a domain of another owner has the name or the UUID, because libvirt would redefine that
// domain.
func (l *launch) checkNotTaken(ctx context.Context) error {
	if _, err := l.DomainLookupByUUID(libvirt.UUID(l.id)); err == nil {
		return provider.Errorf(provider.AlreadyExists,
			"domain %s, which was created with this token, no longer belongs to the machine", providerID(libvirt.UUID(l.id)))
	} else if !isAbsent(err) {
		return translate(ctx, err, "look for domain "+l.id.String())
	}
	if _, err := l.DomainLookupByName(l.name()); err == nil {
		return provider.Errorf(provider.FailedPrecondition,
			"the hypervisor has a domain with the name %s that does not belong to the machine; rename or remove it", l.name())
	} else if !isAbsent(err) {
		return translate(ctx, err, "look for domain "+l.name())
	}
	return nil
}

// name returns the name of the domain and its Node.
func (l *launch) name() string { return naming.Instance(l.own.cluster, l.own.machine, l.req.Token) }

func (l *launch) prepare(ctx context.Context) (string, error) {
	p, err := l.createVolumes(ctx)
	if err != nil {
		return "", err
	}
	if err := l.findKernel(ctx, &p); err != nil {
		return "", err
	}
	m := metadata{
		Attempt: l.attempt, Spec: specHash(l.spec), VCPUs: l.spec.VCPUs, MemoryMiB: l.spec.MemoryMiB,
		Version: l.req.Version, Created: timestamp(), Zone: l.spec.Zone,
		Type: instanceType(l.spec), Addresses: l.spec.AddressSource,
	}
	l.own.tag(&m)
	m.Volumes = append([]volumeReference{p.root}, p.disks...)
	if p.seed.Name != "" {
		m.Volumes = append(m.Volumes, p.seed)
	}
	if p.console != "" {
		m.Volumes = append(m.Volumes, volumeReference{l.spec.Volume.Pool, l.own.volumeName(l.attempt, partConsole)})
	}
	text, err := domainDefinition(l.id, l.name(), l.spec, m, p)
	if err != nil {
		return "", provider.Errorf(provider.Internal, "the XML of the domain cannot be written")
	}
	return text, nil
}

// createVolumes creates the volumes, or finds the volumes of an earlier call.
func (l *launch) createVolumes(ctx context.Context) (p parts, err error) {
	root := volumeXML{
		Capacity: sizeXML{"bytes", uint64(l.spec.Volume.SizeGiB) << 30}, Target: volumeTargetXML{Format: formatXML{"qcow2"}},
	}
	if l.spec.Volume.Base != "" {
		base, err := l.existingVolume(ctx, l.spec.Volume.BasePool, "volume.basePool", l.spec.Volume.Base, "volume.base")
		if err != nil {
			return p, err
		}
		if base.Capacity.Bytes > root.Capacity.Bytes {
			e := provider.Errorf(provider.FailedPrecondition, "%d GiB are less than the %d bytes of the base volume %.64q",
				l.spec.Volume.SizeGiB, base.Capacity.Bytes, l.spec.Volume.Base)
			e.Field = "volume.sizeGiB"
			return p, e
		}
		root.Backing = &backingXML{Path: base.Target.Path, Format: base.Target.Format}
	}
	if p.root, _, err = l.createVolume(ctx, l.spec.Volume.Pool, "volume.pool", partRoot, root); err != nil {
		return p, err
	}
	for i, d := range l.spec.Disks {
		field := fmt.Sprintf("disks[%d].pool", i)
		v, _, err := l.createVolume(ctx, d.Pool, field, partDisk+d.Name, volumeXML{
			Capacity: sizeXML{"bytes", uint64(d.SizeGiB) << 30}, Target: volumeTargetXML{Format: formatXML{"qcow2"}},
		})
		if err != nil {
			return p, err
		}
		p.disks = append(p.disks, v)
	}
	if l.spec.ConsoleLog {
		_, v, err := l.createVolume(ctx, l.spec.Volume.Pool, "volume.pool", partConsole, volumeXML{
			Capacity: sizeXML{"bytes", 0}, Target: volumeTargetXML{Format: formatXML{"raw"}},
		})
		if err != nil {
			return p, err
		}
		if p.console, err = l.StorageVolGetPath(v); err != nil {
			return p, translate(ctx, err, "find the volume of the console")
		}
	}
	if !l.req.UserData.IsEmpty() {
		p.seed, err = l.createSeed(ctx)
	}
	return p, err
}

func (l *launch) createVolume(ctx context.Context, pool, field, part string,
	v volumeXML) (volumeReference, libvirt.StorageVol, error) {
	v.Name = l.own.volumeName(l.attempt, part)
	in, err := l.pool(ctx, pool, field)
	if err != nil {
		return volumeReference{}, libvirt.StorageVol{}, err
	}
	created, err := l.ensureVolume(ctx, in, v, field)
	return volumeReference{pool, v.Name}, created, err
}

// createSeed always writes the user data, because an earlier call may have been interrupted.
func (l *launch) createSeed(ctx context.Context) (volumeReference, error) {
	content := seed.Image(seed.Data{
		InstanceID: l.id.String(), HostName: l.name(), UserData: l.req.UserData.Reveal(), NetworkConfig: l.spec.NetworkConfig,
	})
	ref, v, err := l.createVolume(ctx, l.spec.SeedPool, "seedPool", partSeed, volumeXML{
		Capacity: sizeXML{"bytes", uint64(len(content))}, Target: volumeTargetXML{Format: formatXML{"raw"}},
	})
	if err == nil {
		err = l.uploadSeed(ctx, v, content)
	}
	return ref, err
}

func (l *launch) findKernel(ctx context.Context, p *parts) error {
	k := l.spec.Kernel
	if k == nil {
		return nil
	}
	image, err := l.existingVolume(ctx, k.Pool, "kernel.pool", k.Image, "kernel.image")
	if err != nil {
		return err
	}
	p.kernel = image.Target.Path
	if k.Initrd == "" {
		return nil
	}
	initrd, err := l.existingVolume(ctx, k.Pool, "kernel.pool", k.Initrd, "kernel.initrd")
	p.initrd = initrd.Target.Path
	return err
}

// startError converts an error of the call that creates and starts a domain. After this error, the volumes exist
// without a domain. The next call of Create uses these volumes.
func (l *launch) startError(ctx context.Context, err error) error {
	attempted := "start domain " + l.name()
	switch {
	case codeOf(err) == libvirt.ErrOk:
	case codeOf(err) == libvirt.ErrNoNetwork, messageContains(err, "cannot get interface mtu", "network '"):
		return withField(provider.Errorf(provider.FailedPrecondition,
			"%s: a network or bridge does not exist or is not active", attempted), "networks")
	case codeOf(err) == libvirt.ErrOperationInvalid, messageContains(err, "already exists"):
		return provider.Errorf(provider.Aborted, "%s: a domain with this name or UUID exists already", attempted)
	}
	return translate(ctx, err, attempted)
}

// persist makes a domain persistent, so that it starts with the hypervisor.
func (l *launch) persist(ctx context.Context, d libvirt.Domain, text string) error {
	if _, err := l.DomainDefineXMLFlags(text, 0); err != nil {
		return translate(ctx, err, "make domain "+providerID(d.UUID)+" persistent")
	}
	return l.autostart(ctx, d)
}

func (l *launch) autostart(ctx context.Context, d libvirt.Domain) error {
	return translate(ctx, l.DomainSetAutostart(d, 1), "set domain "+providerID(d.UUID)+" to start with the hypervisor")
}

// ambiguousError converts an error that occurred after the creation of the domain. The result always has a code for
// which the caller assumes that an instance may exist.
func ambiguousError(err error) error {
	if err == nil || provider.CodeOf(err).Ambiguous() {
		return err
	}
	return &provider.Error{Code: provider.Aborted, Message: err.Error(), Cause: err}
}
