import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.ManifestContent;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.CommitMetadata;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.SparkTableCache;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.ThreadPools;
import org.apache.spark.sql.MergeIntoWriter;

/**
 * Loops over Iceberg's files and file tasks, and a merge whose snapshot carries properties.
 *
 * <p>Janino compiles it in the session, as it compiles the code that Spark generates: no lambdas and no generics. Texts
 * of many files cross to Python as one text, separated by null characters.
 */
public final class JavaHelper {
  private static final String SEPARATOR = "\0";
  private static final int SHORT = 2500;
  private static final Object[] NOTHING = new Object[0];

  /** A long text stays in the JVM, and Python reads it in parts: see `fetch_text`. */
  private static Object answer(CharSequence text) {
    return text.length() <= SHORT ? (Object) text.toString() : new StringBuilder(text);
  }

  public Object metadata(Table table) {
    for (Object item : table.snapshots()) {
      Snapshot snapshot = (Snapshot) item;
      if (snapshot.manifestListLocation() == null) {
        // Writing its JSON would make it remember manifests that cannot be read.
        snapshot.allManifests(table.io());
      }
    }
    return answer(TableMetadataParser.toJson(((HasTableOperations) table).operations().current()));
  }

  private static Object joined(Iterable texts) {
    return answer(String.join(SEPARATOR, texts));
  }

  /** One fact about each of these files or tasks; most are named by the method of `ContentFile`. */
  public Object texts(List items, String what) throws Exception {
    Method method = null;
    for (Method each : ContentFile.class.getMethods()) {
      method = each.getName().equals(what) ? each : method;
    }
    List texts = new ArrayList(items.size());
    for (Object item : items) {
      texts.add(String.valueOf(method == null ? fact(item, what) : method.invoke(file(item), NOTHING)));
    }
    return joined(texts);
  }

  private static Object fact(Object item, String what) {
    switch (what) {
      case "delete digest":
        return deleteDigest(((FileScanTask) item).deletes());
      case "deleted rows":
        long rows = 0;
        for (Object file : ((FileScanTask) item).deletes()) {
          rows += ((DeleteFile) file).recordCount();
        }
        return Long.valueOf(rows);
      case "data rows":
        return Long.valueOf(item instanceof DeleteFile ? 0 : ((ContentFile) item).recordCount());
      case "place":
        return place((ContentFile) item);
      default:
        throw new IllegalArgumentException(what);
    }
  }

  private static Object file(Object item) {
    return item instanceof FileScanTask ? ((FileScanTask) item).file() : item;
  }

  /** A digest of 128 bits of the set of delete files; null for none. */
  private static Object deleteDigest(List deletes) {
    Set places = new TreeSet();
    for (Object file : deletes) {
      places.add(place((DeleteFile) file));
    }
    return places.isEmpty() ? null : UUID.nameUUIDFromBytes(places.toString().getBytes(StandardCharsets.UTF_8));
  }

  /** Several deletion vectors share one Puffin file and differ by their offset in it. */
  private static String place(ContentFile file) {
    return file instanceof DeleteFile ? file.location() + "#" + ((DeleteFile) file).contentOffset() : file.location();
  }

  public List at(List items, String positions) {
    List chosen = new ArrayList();
    for (String position : positions.split(SEPARATOR)) {
      chosen.add(items.get(Integer.parseInt(position)));
    }
    return chosen;
  }

  /**
   * A scan of a snapshot by the schema of today: Iceberg's own would have the names and the partition types of that
   * time.
   */
  public TableScan scan(Table table, long snapshotId) {
    return new TableAt((BaseTable) table, snapshot(table, Long.valueOf(snapshotId))).newScan();
  }

  private static Snapshot snapshot(Table table, Long snapshotId) {
    Snapshot snapshot = snapshotId == null ? null : table.snapshot(snapshotId.longValue());
    if (snapshotId != null && snapshot == null) {
      throw new IllegalArgumentException("Cannot find snapshot with ID " + snapshotId);
    }
    return snapshot;
  }

  private static final class TableAt extends BaseTable {
    private final Snapshot snapshot;

    TableAt(BaseTable table, Snapshot snapshot) {
      super(table.operations(), table.name(), table.reporter());
      this.snapshot = snapshot;
    }

    public Snapshot currentSnapshot() {
      return snapshot;
    }
  }

  public List planned(TableScan scan) throws Exception {
    return planned(scan, null);
  }

  /** Plan a scan and return the tasks of these data files. */
  private static List planned(TableScan scan, Set wanted) throws Exception {
    CloseableIterable planned = scan.planFiles();
    try {
      List tasks = new ArrayList();
      for (Object item : planned) {
        if (wanted == null || wanted.contains(((FileScanTask) item).file().location())) {
          tasks.add(item);
        }
      }
      return tasks;
    } finally {
      planned.close();
    }
  }

  /** The live files that one of two snapshots alone has, of the older, of the newer; whether the older has deletes. */
  public List difference(Table table, Long older, long newer) throws Exception {
    Manifests data = new Manifests(table, older, newer, false);
    Manifests deletes = new Manifests(table, older, newer, true);
    List sides = new ArrayList();
    for (int side = 0; side < 2; side++) {
      List files = data.different(side);
      files.addAll(deletes.different(side));
      sides.add(files);
    }
    sides.add(Boolean.valueOf(deletes.hasAny(0)));
    return sides;
  }

  /**
   * The tasks of two snapshots whose rows may differ: of the older one, then of the newer one.
   *
   * <p>These are the data files that one side alone has, and those that a delete file of one side alone applies to. If
   * it names none, it may apply to any; then its side is planned.
   */
  public List changed(Table table, Long older, long newer) throws Exception {
    Manifests data = new Manifests(table, older, newer, false);
    Manifests deletes = new Manifests(table, older, newer, true);
    Set alone = new HashSet();
    Set hit = new HashSet();
    for (int side = 0; side < 2; side++) {
      for (Object file : data.different(side)) {
        alone.add(((ContentFile) file).location());
      }
      Set anywhere = new HashSet();
      for (Object file : deletes.different(side)) {
        String target = ContentFileUtil.referencedDataFileLocation((DeleteFile) file);
        (target == null ? anywhere : hit).add(target == null ? place((ContentFile) file) : target);
      }
      for (Object item : anywhere.isEmpty() ? new ArrayList() : planned(scan(table, data.snapshots[side].snapshotId()))) {
        for (Object file : ((FileScanTask) item).deletes()) {
          if (anywhere.contains(place((ContentFile) file))) {
            hit.add(((FileScanTask) item).file().location());
          }
        }
      }
    }
    return data.tasks(alone, hit);
  }

  /** The manifests of two snapshots, for data files or for delete files, and the live files of those not in both. */
  private static final class Manifests {
    final Snapshot[] snapshots;
    private final Table table;
    private final List[] own = {new ArrayList(), new ArrayList()};
    private final List[] shared = {new ArrayList(), new ArrayList()};
    private final List[] files = new List[2];
    private final Map surplus = new HashMap();

    Manifests(Table table, Long older, long newer, boolean ofDeletes) throws Exception {
      this.table = table;
      this.snapshots = new Snapshot[] {snapshot(table, older), snapshot(table, Long.valueOf(newer))};
      Map[] listed = {new TreeMap(), new TreeMap()};
      for (int side = 0; side < 2; side++) {
        Snapshot at = snapshots[side];
        if (at != null) {
          for (Object item : ofDeletes ? at.deleteManifests(table.io()) : at.dataManifests(table.io())) {
            listed[side].put(((ManifestFile) item).path(), item);
          }
        }
      }
      for (int side = 0; side < 2; side++) {
        for (Object item : listed[side].values()) {
          Object other = listed[1 - side].get(((ManifestFile) item).path());
          boolean isShared = other != null && facts((ManifestFile) item).equals(facts((ManifestFile) other));
          (isShared ? shared : own)[side].add(item);
        }
        files[side] = read(own[side], null);
        for (Object several : files[side]) {
          for (Object file : (List) several) {
            Integer before = (Integer) surplus.get(facts((ContentFile) file));
            int sum = (before == null ? 0 : before.intValue()) + (side == 0 ? -1 : 1);
            surplus.put(facts((ContentFile) file), Integer.valueOf(sum));
          }
        }
      }
    }

    /** What a list says about a manifest that decides how its entries are read. */
    private List facts(ManifestFile manifest) {
      boolean isRead = manifest.hasAddedFiles() || manifest.hasExistingFiles();
      Object rowId = hasRowIds() ? manifest.firstRowId() : null;
      return Arrays.asList(new Object[] {
            Long.valueOf(manifest.sequenceNumber()), Integer.valueOf(manifest.partitionSpecId()), Boolean.valueOf(isRead), rowId
          });
    }

    private List facts(ContentFile file) {
      Object rowId = hasRowIds() ? file.firstRowId() : null;
      Long size = Long.valueOf(file.fileSizeInBytes());
      Object[] facts = {place(file), size, Long.valueOf(file.recordCount()), file.dataSequenceNumber(), rowId};
      return Arrays.asList(facts);
    }

    /** Whether both sides have row ids; a table gets them when it becomes format version 3. */
    private boolean hasRowIds() {
      return snapshots[0] != null && snapshots[0].firstRowId() != null;
    }

    boolean hasAny(int side) {
      return !own[side].isEmpty() || !shared[side].isEmpty();
    }

    List different(int side) {
      List found = new ArrayList();
      for (Object several : files[side]) {
        for (Object file : (List) several) {
          int sum = ((Integer) surplus.get(facts((ContentFile) file))).intValue();
          if (side == 0 ? sum < 0 : sum > 0) {
            found.add(file);
          }
        }
      }
      return found;
    }

    /** The tasks of data files that are in the own manifests of a side, or anywhere. */
    List tasks(Set inOwn, Set anywhere) throws Exception {
      Set wanted = new HashSet(inOwn);
      wanted.addAll(anywhere);
      List found = anywhere.isEmpty() ? null : read(shared[1], anywhere);
      List sides = new ArrayList();
      for (int side = 0; side < 2; side++) {
        List manifests = new ArrayList();
        for (int i = 0; i < own[side].size(); i++) {
          for (Object file : (List) files[side].get(i)) {
            if (wanted.contains(((ContentFile) file).location())) {
              manifests.add(own[side].get(i));
              break;
            }
          }
        }
        for (int i = 0; found != null && i < found.size(); i++) {
          if (!((List) found.get(i)).isEmpty()) {
            manifests.add(shared[side].get(i));
          }
        }
        Snapshot part = manifests.isEmpty() ? null : withManifests(snapshots[side], manifests);
        sides.add(part == null ? manifests : planned(new TableAt((BaseTable) table, part).newScan(), wanted));
      }
      return sides;
    }

    /** For each manifest its live files, or those of them that are wanted. */
    private List read(List manifests, final Set wanted) throws Exception {
      List reading = new ArrayList();
      for (Object item : manifests) {
        final ManifestFile manifest = (ManifestFile) item;
        reading.add(
            ThreadPools.getWorkerPool()
                .submit(
                    new Callable() {
                      public Object call() throws Exception {
                        return liveFiles(table, manifest, wanted);
                      }
                    }));
      }
      List files = new ArrayList();
      for (Object each : reading) {
        files.add(((Future) each).get());
      }
      return files;
    }
  }

  private static final List FEW_COLUMNS =
      Arrays.asList(new Object[] {"file_path", "file_size_in_bytes", "record_count", "first_row_id"});

  private static List liveFiles(Table table, ManifestFile manifest, Set wanted) throws Exception {
    List files = new ArrayList();
    // As Iceberg's own scans do.
    if (!manifest.hasAddedFiles() && !manifest.hasExistingFiles()) {
      return files;
    }
    ManifestReader reader =
        manifest.content() == ManifestContent.DELETES
            ? ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
            : ManifestFiles.read(manifest, table.io(), table.specs()).select(FEW_COLUMNS);
    try {
      for (Object file : reader) {
        if (wanted == null || wanted.contains(((ContentFile) file).location())) {
          files.add(file);
        }
      }
      return files;
    } finally {
      reader.close();
    }
  }

  private static Snapshot withManifests(final Snapshot snapshot, final List manifests) {
    InvocationHandler handler =
        new InvocationHandler() {
          public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
            return method.getName().equals("dataManifests") ? manifests : method.invoke(snapshot, given);
          }
        };
    Class[] types = {Snapshot.class};
    return (Snapshot) Proxy.newProxyInstance(Snapshot.class.getClassLoader(), types, handler);
  }

  /** Spark 4.1 finds the table by the key, too. */
  public void stage(Table table, String key, List tasks) {
    ScanTaskSetManager.get().stageTasks(table, key, tasks);
    SparkTableCache.get().add(key, table);
  }

  public void release(Table table, String key) {
    ScanTaskSetManager.get().removeTasks(table, key);
    SparkTableCache.get().remove(key);
  }

  /** MERGE has no write options, so Iceberg takes the properties from the thread that runs it. */
  public void merge(final MergeIntoWriter writer, Map properties) throws Exception {
    CommitMetadata.withCommitProperties(
        properties,
        new Callable() {
          public Object call() {
            writer.merge();
            return null;
          }
        },
        RuntimeException.class);
  }
}
