"""Settings for the short lives of Spark sessions in tests."""

#: Half of a test's time goes into compiling Java code that never runs often enough to earn it back.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = {"spark.driver.extraJavaOptions": JAVA_OPTIONS}
