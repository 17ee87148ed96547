package manifests

func healthChecks() []Bad {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	condition := func(name, status string, timeout any) Changes {
		return spec("unhealthyNodeConditions", []any{map[string]any{"type": name, "status": status, "timeout": timeout}})
	}
	const field, first = "spec.unhealthyNodeConditions", "spec.unhealthyNodeConditions[0]"
	all := table(BySchema, "MachineHealthCheck", HealthCheck,
		row{"without a selector", spec("selector", nil), reports("spec.selector")},
		row{"with a selector that is none", spec("selector", MatchLabels("my pool", "a")),
			reports("spec.selector.matchLabels")},
		row{"with a selector with an operator that is none",
			spec("selector", map[string]any{"matchExpressions": []any{map[string]any{"key": "pool", "operator": "Gt",
				"values": []string{"1"}}}}), reports("spec.selector.matchExpressions[0].operator")},
		row{"with maxUnhealthy over 100 percent", spec("maxUnhealthy", "101%"), reports("spec.maxUnhealthy")},
		row{"with a negative maxUnhealthy", spec("maxUnhealthy", -1), reports("spec.maxUnhealthy")},
		row{"with maxUnhealthy of 2^31", spec("maxUnhealthy", int64(1)<<31), reports("spec.maxUnhealthy")},
		row{"with a condition without a timeout", condition("Ready", "False", nil), reports(first + ".timeout")},
		row{"with a condition with a status that is none", condition("Ready", "Maybe", "1m"), reports(first + ".status")},
		row{"with a condition without a type", condition("", "True", "1m"), reports(first + ".type")},
		row{"with a condition with a type that is too long", condition(a(317), "True", "1m"), reports(first + ".type")},
		row{"with Ready in small letters", condition("ready", "False", "1m"), reports(first+".type", "write Ready")},
		row{"with PIDPressure in another case", condition("PidPressure", "True", "1m"),
			reports(first+".type", "PIDPressure")},
		row{"with a condition with a timeout in words", condition("Ready", "True", "10 minutes"),
			reports(first + ".timeout")},
		row{"with a condition with a negative timeout", condition("Ready", "False", "-1m"), reports(first + ".timeout")},
		row{"with a condition twice", spec("unhealthyNodeConditions", []any{
			map[string]any{"type": "Ready", "status": "False", "timeout": "1m"},
			map[string]any{"type": "Ready", "status": "False", "timeout": "2m"},
		}), reports(field)},
		row{"with too many conditions", spec("unhealthyNodeConditions", many(65, func(i int) any {
			return map[string]any{"type": a(i + 1), "status": "True", "timeout": "1m"}
		})), reports(field)},
		row{"with a startup timeout in words", spec("nodeStartupTimeout", "10 minutes"), reports("spec.nodeStartupTimeout")},
		row{"with no startup timeout", spec("nodeStartupTimeout", "0s"), reports("spec.nodeStartupTimeout")},
		row{"with a remediation that is none", spec("remediation/type", "Reboot"), reports("spec.remediation.type")},
		row{"with negative maxRetries", spec("remediation/maxRetries", -1), reports("spec.remediation.maxRetries")},
		row{"with maxRetries of 1001", spec("remediation/maxRetries", 1001), reports("spec.remediation.maxRetries")},
	)
	return append(all, table(ByManager, "MachineHealthCheck", HealthCheck,
		row{"to which Ready is unhealthy", condition("Ready", "True", "1m"), reports(first + ".status")},
		row{"with a condition type that is no name", condition("my condition", "True", "1m"), reports(first + ".type")},
		row{"with a condition type in unicode", condition("größe 🚀", "True", "1m"), reports(first + ".type")},
	)...)
}
