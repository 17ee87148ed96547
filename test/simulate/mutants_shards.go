package main

// shardMutants are bugs of how namespaces are divided among processes, and handed over.
func shardMutants() []mutant {
	const joint, twice, unserved = "internal/operator/fence/joint.go", "two owners", "nobody serves"
	of := func(name, file, from, to, finds string) mutant {
		return mutant{name: name, file: file, from: from, to: to, finds: finds, handovers: true}
	}
	return []mutant{
		of("common-lease-not-held", joint,
			"	if err := j.hold(ctx, record); err != nil {\n		return err\n	}\n	if !j.ownFound {",
			"	if !j.ownFound {", twice),
		of("common-lease-not-waited-for", joint,
			"case common.HolderIdentity != \"\" && common.HolderIdentity != j.common.Identity():", "case false:", twice),
		of("common-lease-released", joint,
			"	if record.HolderIdentity == \"\" {\n",
			"	if record.HolderIdentity == \"\" {\n		_ = j.common.Update(ctx, record)\n", twice),
		of("common-lease-renewed-by-whoever-holds-it", joint,
			"err == nil && record.HolderIdentity != j.common.Identity()", "err == nil && record == nil", twice),
		of("groups-of-one-name", "internal/sharding/shard.go",
			`fmt.Sprintf("%d-shards", s.Count)`, `"shards"`, twice),
		of("one-lease-for-all-shards", "internal/sharding/shard.go",
			`fmt.Sprintf("%s-shard-%d", name, s.Index)`, `name + "-shard"`, unserved),
		of("lease-of-another-shard", "internal/sharding/shard.go",
			"Of(namespace, s.Count) == s.Index", "Of(namespace, s.Count) <= s.Index", twice),
		of("twice-as-many-shards", "internal/sharding/shard.go",
			"bits.Mul64(mixed(h.Sum64()), uint64(count))", "bits.Mul64(mixed(h.Sum64()), uint64(2*count))", unserved),
		of("lease-not-checked", "internal/operator/fence/fence.go",
			"age >= f.deadline {", "age >= 2*f.deadline {", twice),
		of("lease-counts-from-the-answer", "internal/operator/fence/lock.go",
			"l.fence.renewed(sent)", "l.fence.renewed(l.fence.clock.Now())", twice),
		of("renewal-not-to-be-seen", "internal/operator/fence/lease.go",
			"[]byte(string(read.UID) + \"/\" + read.ResourceVersion)",
			"[]byte(*read.Spec.HolderIdentity + read.Spec.AcquireTime.String())", twice),
		of("released-while-it-acts", "internal/operator/fence/lock.go",
			"	l.fence.release()\n", "", twice),
	}
}
