"""Updates of running dataflows: five strategies, as code without processes, network or clock."""
