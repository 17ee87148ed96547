package manifests

import (
	"strings"

	"machinist.dev/machinist/internal/platform/conditionlimit"
)

func healthChecks() []InvalidObject {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	condition := func(name, status string, timeout any) Changes {
		return spec("unhealthyNodeConditions", []any{map[string]any{"type": name, "status": status, "timeout": timeout}})
	}
	machineCondition := func(name, status string, timeout any) Changes {
		return spec("unhealthyMachineConditions", []any{map[string]any{"type": name, "status": status, "timeout": timeout}})
	}
	remediation := func(kind string, change Changes) Changes {
		template := map[string]any{"apiVersion": "fencing.example.com/v1", "kind": "PowerCycleTemplate", "namespace": "fencing",
			"name": "default"}
		fields := map[string]any{"type": kind, "templateRef": template}
		for name, value := range change {
			if part, ok := strings.CutPrefix(name, "templateRef/"); ok {
				template[part] = value
			} else {
				fields[name] = value
			}
		}
		return spec("remediation", fields)
	}
	external := func(field string, value any) Changes { return remediation("External", Changes{field: value}) }
	const at = "spec.remediation."
	const field, first = "spec.unhealthyNodeConditions", "spec.unhealthyNodeConditions[0]"
	all := table(BySchema, "MachineHealthCheck", HealthCheck,
		entry{"without a selector", spec("selector", nil), reports("spec.selector")},
		entry{"with an invalid selector", spec("selector", MatchLabels("my pool", "a")),
			reports("spec.selector.matchLabels")},
		entry{"with a selector with an unknown operator",
			spec("selector", map[string]any{"matchExpressions": []any{map[string]any{"key": "pool", "operator": "Gt",
				"values": []string{"1"}}}}), reports("spec.selector.matchExpressions[0].operator")},
		entry{"with maxUnhealthy over 100 percent", spec("maxUnhealthy", "101%"), reports("spec.maxUnhealthy")},
		entry{"with a negative maxUnhealthy", spec("maxUnhealthy", -1), reports("spec.maxUnhealthy")},
		entry{"with maxUnhealthy of 2^31", spec("maxUnhealthy", int64(1)<<31), reports("spec.maxUnhealthy")},
		entry{"with a range whose first number is greater", spec("unhealthyRange", "[5-3]"),
			reports("spec.unhealthyRange", "[5-3]", "the first must not be greater")},
		entry{"with a range without brackets", spec("unhealthyRange", "3-5"), reports("spec.unhealthyRange", "3-5")},
		entry{"with a negative range", spec("unhealthyRange", "[-1-5]"), reports("spec.unhealthyRange", "[-1-5]")},
		entry{"with a huge range", spec("unhealthyRange", "[1-9999999999]"),
			reports("spec.unhealthyRange", "[1-9999999999]", "at most 9 digits")},
		entry{"with a range that is too long", spec("unhealthyRange", a(33)), reports("spec.unhealthyRange")},
		entry{"with an empty range", spec("unhealthyRange", ""), reports("spec.unhealthyRange")},
		entry{"with a machine condition without a timeout", machineCondition("GPUHealthy", "False", nil),
			reports("spec.unhealthyMachineConditions[0].timeout")},
		entry{"with a machine condition with an unknown status", machineCondition("GPUHealthy", "Maybe", "1m"),
			reports("spec.unhealthyMachineConditions[0].status")},
		entry{"with a machine condition without a type", machineCondition("", "False", "1m"),
			reports("spec.unhealthyMachineConditions[0].type")},
		entry{"with a machine condition with a negative timeout", machineCondition("GPUHealthy", "False", "-1m"),
			reports("spec.unhealthyMachineConditions[0].timeout")},
		entry{"with the machine condition ready", machineCondition("ready", "False", "1m"),
			reports("spec.unhealthyMachineConditions[0].type", "Machinist sets this condition")},
		entry{"with a duplicate machine condition", spec("unhealthyMachineConditions", []any{
			map[string]any{"type": "GPUHealthy", "status": "False", "timeout": "1m"},
			map[string]any{"type": "GPUHealthy", "status": "False", "timeout": "2m"},
		}), reports("spec.unhealthyMachineConditions")},
		entry{"with a condition without a timeout", condition("Ready", "False", nil), reports(first + ".timeout")},
		entry{"with a condition with an unknown status", condition("Ready", "Maybe", "1m"), reports(first + ".status")},
		entry{"with a condition without a type", condition("", "True", "1m"), reports(first + ".type")},
		entry{"with a condition with a type that is too long", condition(a(317), "True", "1m"), reports(first + ".type")},
		entry{"with the condition ready in lower case", condition("ready", "False", "1m"), reports(first+".type", "write Ready")},
		entry{"with the condition PIDPressure in another case", condition("PidPressure", "True", "1m"),
			reports(first+".type", "PIDPressure")},
		entry{"with a condition with a timeout in words", condition("Ready", "True", "10 minutes"),
			reports(first + ".timeout")},
		entry{"with a condition with a negative timeout", condition("Ready", "False", "-1m"), reports(first + ".timeout")},
		entry{"with a duplicate condition", spec("unhealthyNodeConditions", []any{
			map[string]any{"type": "Ready", "status": "False", "timeout": "1m"},
			map[string]any{"type": "Ready", "status": "False", "timeout": "2m"},
		}), reports(field)},
		entry{"with too many conditions", spec("unhealthyNodeConditions", many(65, func(i int) any {
			return map[string]any{"type": a(i + 1), "status": "True", "timeout": "1m"}
		})), reports(field)},
		entry{"with a startup timeout in words", spec("nodeStartupTimeout", "10 minutes"), reports("spec.nodeStartupTimeout")},
		entry{"with a startup timeout of 0s", spec("nodeStartupTimeout", "0s"), reports("spec.nodeStartupTimeout")},
		entry{"with an unknown remediation", spec("remediation/type", "Repair"), reports("spec.remediation.type")},
		entry{"with negative maxRetries", spec("remediation/maxRetries", -1), reports("spec.remediation.maxRetries")},
		entry{"with maxRetries of 1001", spec("remediation/maxRetries", 1001), reports("spec.remediation.maxRetries")},
		entry{"with a template and the type Replace", remediation("Replace", nil), reports(at+"templateRef",
			"requires type External")},
		entry{"with a template and the type None", remediation("None", nil), reports(at+"templateRef",
			"requires type External")},
		entry{"with a timeout without a template", spec("remediation", map[string]any{"type": "External",
			"timeout": "5m"}),
			reports(at+"timeout", "requires templateRef")},
		entry{"with onTimeout without a template", spec("remediation", map[string]any{"type": "External",
			"onTimeout": "None"}),
			reports(at+"onTimeout", "requires templateRef")},
		entry{"with a remediation timeout of 0s", external("timeout", "0s"), reports(at+"timeout", "longer than 0s")},
		entry{"with a negative remediation timeout", external("timeout", "-1m"), reports(at + "timeout")},
		entry{"with a remediation timeout in words", external("timeout", "10 minutes"), reports(at + "timeout")},
		entry{"with an unknown onTimeout", external("onTimeout", "Reboot"), reports(at + "onTimeout")},
		entry{"with a template without a group", external("templateRef/apiVersion", "v1"),
			reports(at + "templateRef.apiVersion")},
		entry{"with a kind that is not a template", external("templateRef/kind", "PowerCycle"),
			reports(at + "templateRef.kind")},
		entry{"with a template without a namespace", external("templateRef/namespace", ""),
			reports(at + "templateRef.namespace")},
		entry{"with a template name in upper case", external("templateRef/name", "Default"),
			reports(at + "templateRef.name")},
		entry{"with a template name that is too long", external("templateRef/name", a(254)),
			reports(at + "templateRef.name")},
	)
	for _, own := range conditionlimit.Machine.Own {
		all = append(all, table(BySchema, "MachineHealthCheck", HealthCheck, entry{
			"with the machine condition " + own + " of Machinist", machineCondition(own, "False", "1m"),
			reports("spec.unhealthyMachineConditions[0].type", "Machinist sets this condition")})...)
	}
	return append(all, table(ByManager, "MachineHealthCheck", HealthCheck,
		entry{"that treats Ready nodes as unhealthy", condition("Ready", "True", "1m"), reports(first + ".status")},
		entry{"with a condition type that is not a qualified name", condition("my condition", "True", "1m"),
			reports(first + ".type")},
		entry{"with a machine condition that is not a qualified name", machineCondition("my condition", "True", "1m"),
			reports("spec.unhealthyMachineConditions[0].type")},
		entry{"with a remediation of a kind that is not permitted", remediation("External", nil),
			reports(at+"templateRef.kind", "--remediation-kinds")},
		entry{"with a non-ASCII condition type", condition("größe 🚀", "True", "1m"), reports(first + ".type")},
	)...)
}
